-- The stream in whose turn a message is delivered: its own, or the shortest of its hand.
local function turn_of(place, hand)
  if place == 'l' then return LEGACY end
  if place ~= 'd' then return place end
  local turns = {}
  for number in string.gmatch(hand, '%d+') do turns[#turns + 1] = tostring(number % streams) end
  local best, fewest = turns[1] or '0', nil
  local lengths = #turns > 1 and redis.call('HMGET', lens, unpack(turns)) or {} -- at most 4,096: all streams
  for at, length in ipairs(lengths) do
    local left = undelivered[turns[at]] or tonumber(length or '0')
    if not fewest or left < fewest then best, fewest = turns[at], left end
  end
  return best
end
