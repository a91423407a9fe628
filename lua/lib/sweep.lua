-- Ended leases and due messages become deliverable again, at most 200 of each in one call.
-- When the server's clock ran ahead of the caller's, leases end early by that clock: reaping pauses for one lease time.
--- @include lib/never
local soonest = NEVER
local function head(index)
  return tonumber(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]) or NEVER
end
local function take_due(index)
  local due = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 200)
  if #due > 0 then redis.call('ZREM', index, unpack(due)) end
  return due
end
local function reap()
  for _, token in ipairs(take_due(leases)) do
    local place, id, deliveries = split_token(token)
    local handle = place .. ':' .. id
    local _, hand = attempts_of(handle)
    if redis.call('SREM', cancelled, handle) == 1 then
      redis.call('HDEL', attempts, handle)
      redis.call('HINCRBY', meta, 'gone', 1)
    else
      note_attempts(handle, deliveries, hand, 'lease ended')
      give_back(handle, turn_of(place, hand, streams))
    end
  end
end
local function promote()
  for _, handle in ipairs(take_due(delayed)) do
    local _, hand = attempts_of(handle)
    give_back(handle, turn_of(split_handle(handle), hand, streams))
  end
end
local function sweep(expected, hold)
  local ends, due = head(leases), head(delayed)
  if math.min(ends, due) <= now then check_types() end
  if ends <= now and expected ~= '' then
    if now > tonumber(expected) then
      hold = now + visibility
      redis.call('HSET', meta, 'hold', hold)
    end
    if now >= hold then
      reap()
      ends = head(leases)
    else
      ends = hold
    end
  end
  if due <= now then
    promote()
    due = head(delayed)
  end
  soonest = math.min(ends, due)
end
