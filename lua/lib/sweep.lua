-- Ended leases and due messages become deliverable again, at most 200 of each in one call.
-- When the server's clock ran ahead of the caller's, leases end early by that clock: reaping pauses for one lease time.
--- @include lib/never
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
local function any_due(index)
  return redis.call('ZCOUNT', index, '-inf', now) > 0
end
local paused_until = 0
local function sweep(expected, hold)
  local ended, came_due = any_due(leases), any_due(delayed)
  if ended or came_due then check_types() end
  if ended and expected ~= '' then
    if now > tonumber(expected) then
      hold = now + visibility
      redis.call('HSET', meta, 'hold', hold)
    end
    if now >= hold then reap() else paused_until = hold end
  end
  if came_due then promote() end
end
-- When the next lease ends or the next message is due.
local function next_event()
  return math.min(math.max(head(leases), paused_until), head(delayed))
end
