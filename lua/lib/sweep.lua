-- Ended leases and due messages become deliverable again, at most 200 of each in one call.
-- When the server's clock ran ahead of the caller's, leases end early by that clock: reaping pauses for one lease time.
local function take_due(index)
  local due = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 200)
  if #due > 0 then redis.call('ZREM', index, unpack(due)) end -- at most 200
  return due
end
local function reap()
  for _, token in ipairs(take_due(leases)) do
    local place, id, deliveries = split_token(token)
    local handle = place .. ':' .. id
    local hand, key = owner_of_lease(token, handle)
    land(key)
    if redis.call('SREM', cancelled, handle) == 1 then
      forget_cancelled(handle)
    else
      note_attempts(handle, deliveries, hand, 'lease ended')
      if log then log.lease('l', place, id, deliveries, key) end
      give_back(handle, place, hand, key)
    end
  end
end
local function promote()
  for _, handle in ipairs(take_due(delayed)) do
    local _, hand = attempts_of(handle)
    give_back(handle, split_handle(handle), hand, fair and owner_of(handle))
  end
end
if ended or came_due then
  check_types(nil)
  redis.call('SCARD', cancelled)
end
if ended and ARGV[4] ~= '' then
  local hold = tonumber(state[5])
  if now > tonumber(ARGV[4]) then
    hold = now + visibility
    redis.call('HSET', meta, 'hold', hold)
  end
  if now >= hold then reap() else paused_until = hold end
end
if came_due then promote() end
any_returned = redis.call('ZCARD', returned) > 1
