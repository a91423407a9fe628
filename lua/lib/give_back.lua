-- Make a message deliverable again in its stream's turn; one from the store goes to the shortest stream of its hand.
--- @include lib/legacy
local function turn_of(place, hand, streams)
  if place == 'l' then return LEGACY end
  if place ~= 'd' then return place end
  local best, fewest = nil, nil
  for number in string.gmatch(hand, '%d+') do
    local turn = number % streams
    local undelivered = tonumber(redis.call('HGET', lens, turn) or '0')
    if not fewest or undelivered < fewest then best, fewest = turn, undelivered end
  end
  return tostring(best or 0)
end
local function give_back(handle, turn)
  redis.call('ZADD', returned, turn, handle)
  if redis.call('HINCRBY', lens, turn, 1) == 1 then redis.call('ZADD', ready, turn, turn) end
  notify(turn)
end
