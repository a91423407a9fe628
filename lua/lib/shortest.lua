-- The shard of a message is a hand of positions among the declared streams, two bytes each, best score first.
local function position_at(hand, at)
  local high, low = string.byte(hand, at, at + 1)
  return high * 256 + low
end
-- The first empty stream of the hand, else the one with the fewest undelivered messages.
local function shortest(hand)
  local best, fewest
  for at = 1, #hand, 2 do
    local position = position_at(hand, at)
    local length = undelivered[position]
    if length == 0 then return position end
    if not best or length < fewest then best, fewest = position, length end
  end
  return best
end
local function spelled(hand)
  local numbers = {}
  for at = 1, #hand, 2 do numbers[#numbers + 1] = order[position_at(hand, at)] end
  return table.concat(numbers, ',')
end
