-- The shard of a message, as a call says it: the positions of the shard's streams among those that the call declares, best
-- score first. A position is one byte, or two when more than 255 streams are declared.

-- Returns the position of the shard's stream that has the fewest undelivered messages, and of several the first. It makes no
-- table, since a write of many messages comes here for each.
local function choose_stream(undelivered, shard)
  local byte, is_wide, best, fewest = string.byte, #undelivered > 255, nil, 9e15
  for at = 1, #shard, is_wide and 2 or 1 do
    local position = byte(shard, at)
    if is_wide then position = position * 256 + byte(shard, at + 1) end
    local length = undelivered[position]
    if length < fewest then best, fewest = position, length end
    if length == 0 then break end
  end
  return best
end

-- Returns by position, which is one byte, the numbers of the declared streams as text, each with a comma.
local function spell_positions(q)
  local texts = {}
  for position, number in ipairs(q.numbers) do texts[string.char(position)] = number .. ',' end
  return texts
end

-- Returns the numbers of a shard's streams as text, "3,17". Where a position is one byte, one call puts in all of them.
local function spell_shard(q, shard)
  if q.declared <= 255 then
    q.by_position = q.by_position or spell_positions(q)
    return string.sub(string.gsub(shard, '.', q.by_position), 1, -2)
  end
  local numbers = {}
  for at = 1, #shard, 2 do
    local high, low = string.byte(shard, at, at + 1)
    numbers[#numbers + 1] = q.numbers[high * 256 + low]
  end
  return table.concat(numbers, ',')
end
