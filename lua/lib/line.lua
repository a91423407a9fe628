-- The line of messages that wait for their stream's turn beside the new ones. Scores are turn * 2^40 + position:
-- 0 is the head of the line; one that was let in from the overflow stands where a new message would have stood: it takes a number of the
-- queue's own count of messages, which is given back to the counters as `skipped`.
--- @include lib/places
local function line_up(handle, turn, position)
  redis.call('ZADD', returned, turn * PLACES + position, handle)
  local count
  if undelivered[turn] then
    count = undelivered[turn] + 1
    undelivered[turn] = count
  else
    count = redis.call('HINCRBY', lens, turn, 1)
  end
  if count == 1 then redis.call('ZADD', ready, turn, turn) end
  notify(turn)
end
