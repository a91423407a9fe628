-- What the queue says now of deliveries and dead letters. A client's idea may be old, and counts only where the queue
-- says nothing. Looked up when it is needed first.
local function limits_of(known_deliveries, known_dead)
  local limits
  return function()
    if not limits then
      local told = redis.call('HMGET', meta, 'max_deliveries', 'max_dead')
      limits = {deliveries = tonumber(told[1] or known_deliveries), dead = tonumber(told[2] or known_dead)}
    end
    return limits
  end
end
