-- The shard of a message, as a call says it: the positions of the shard's streams among those that the call declares, best
-- score first. A position is one byte, or two when more than 255 streams are declared. All messages of a shard key have the
-- same shard, so what is found once in a call is kept in `q.shards`.

-- Returns the positions of a shard's streams.
local function read_positions(q, shard)
  local positions = {}
  if q.declared < 256 then
    positions = {string.byte(shard, 1, -1)} -- of a longer text Lua gives no more than 8,000
  else
    for at = 1, #shard / 2 do
      local high, low = string.byte(shard, 2 * at - 1, 2 * at)
      positions[at] = high * 256 + low
    end
  end
  q.shards[shard] = positions
  return positions
end

-- Returns the position of the shard's stream that has the fewest undelivered messages, and of several the first.
local function choose_stream(q, shard, undelivered)
  local positions = q.shards[shard] or read_positions(q, shard)
  local best = positions[1]
  local fewest = undelivered[best]
  for at = 2, #positions do
    local position = positions[at]
    local length = undelivered[position]
    if length < fewest then best, fewest = position, length end
  end
  return best
end

-- Returns the numbers of a shard's streams as text, "3,17".
local function spell_shard(q, shard)
  local positions, names, numbers = q.shards[shard] or read_positions(q, shard), q.numbers, {}
  for at = 1, #positions do numbers[at] = names[positions[at]] end
  return table.concat(numbers, ',')
end
