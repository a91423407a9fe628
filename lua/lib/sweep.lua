-- Ended leases and due messages become deliverable again, at most 200 of each in one call.
--- @include lib/jump
--- @include lib/clock
local function take(index, due)
  if #due > 0 then redis.call('ZREM', index, unpack(due)) end
  return due
end
local function reap(upto)
  local tokens = ended_leases(upto, jump, 200)
  local ends = #tokens > 0 and redis.call('ZMSCORE', leases, unpack(tokens))
  for at, token in ipairs(take(leases, tokens)) do
    local place, id, deliveries = split_token(token)
    local handle = place .. ':' .. id
    local hand, key = owner_of_lease(token, handle)
    land(key)
    if redis.call('SREM', cancelled, handle) == 1 then
      forget_cancelled(handle)
    else
      note_attempts(handle, deliveries, hand, 'lease ended', math.min(now, ends[at]))
      if log then log.lease('l', place, id, deliveries, key) end
      give_back(handle, place, hand, key)
    end
  end
end
local function promote()
  for _, handle in ipairs(take(delayed, redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, 200))) do
    local _, hand = attempts_of(handle)
    give_back(handle, split_handle(handle), hand, fair and owner_of(handle))
  end
end
if ended or came_due then
  check_types(nil)
  redis.call('SCARD', cancelled)
end
if ended and ARGV[4] ~= '' then
  local clock = clock_of(ARGV[4])
  jump = jump_after(clock, state[5] or '', now, visibility)
  reap(ended_by(clock, now))
end
if came_due then promote() end
any_returned = redis.call('ZCARD', returned) > 1
