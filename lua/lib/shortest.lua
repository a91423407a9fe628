-- The shard of a message is a hand of positions in `order`, two bytes each, best score first; '' means all of them.
local function positions(hand)
  local at, last = 0, hand == '' and #order or #hand / 2
  return function()
    at = at + 1
    if at > last then return nil end
    if hand == '' then return at end
    local high, low = string.byte(hand, 2 * at - 1, 2 * at)
    return high * 256 + low
  end
end
-- The first empty stream of the hand, else the one with the fewest undelivered messages.
local function shortest(hand)
  local best
  for position in positions(hand) do
    if undelivered[position] == 0 then return position end
    if not best or undelivered[position] < undelivered[best] then best = position end
  end
  return best
end
local function spelled(hand)
  local numbers = {}
  for position in positions(hand) do numbers[#numbers + 1] = order[position] end
  return table.concat(numbers, ',')
end
