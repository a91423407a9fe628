-- The shard of a message is a hand of positions among the declared streams, best score first: a byte each,
-- or two when more than 255 streams are declared. A tenant's hand is the same in all of its messages.
local picked = {}
local function positions_of(hand)
  local positions = declared < 256 and {string.byte(hand, 1, -1)} or {} -- of a long hand Lua gives no more than 8,000
  if declared > 255 then
    for at = 1, #hand / 2 do
      local high, low = string.byte(hand, 2 * at - 1, 2 * at)
      positions[at] = high * 256 + low
    end
  end
  return positions
end
-- The first empty stream of the hand, else the one with the fewest undelivered messages.
local function shortest(hand)
  local positions = picked[hand]
  if not positions then
    positions = positions_of(hand)
    picked[hand] = positions
  end
  local best = positions[1]
  local fewest = undelivered[best]
  for at = 2, #positions do
    local position = positions[at]
    local length = undelivered[position]
    if length < fewest then best, fewest = position, length end
  end
  return best
end
local function spelled(hand)
  local numbers = positions_of(hand)
  for at = 1, #numbers do numbers[at] = order[numbers[at]] end
  return table.concat(numbers, ',')
end
