-- Gaps: the places that cancels leave inside of an overflow's blocks. A block without messages is no field of `bodies`
-- any more, but a gap, and two gaps side by side become one of twice the size, if the number of the first is a multiple
-- of that. So a run of blocks, however long, is a few gaps, and a call passes over it by a few looks. A gap of 2^level
-- blocks is a field: 'g', the base of the overflow, its level, '.' and the number of its first block; it has the number
-- of the first message that was there.
local LEVELS = 32 -- an overflow has no more blocks than 2^32

local function gap_field(base, level, first) return format('g%s%d.%d', base, level, first) end

-- Returns the gap that a block is in: its first block, the first block behind it, its first message, its field; nil if
-- there is none.
function Gaps.find_gap(q, base, block)
  local fields = {}
  for level = 0, LEVELS do fields[level + 1] = gap_field(base, level, block - block % 2 ^ level) end
  for at, number in ipairs(call('HMGET', q.keys[BODIES], unpack(fields))) do -- at most 33: the levels
    if number then
      local first = block - block % 2 ^ (at - 1)
      return first, first + 2 ^ (at - 1), number + 0, fields[at]
    end
  end
end

-- A block has no message any more; the first had this number. (Written at once: a purge leaves many gaps in one call,
-- and each looks at those beside it.)
function Gaps.leave_gap(q, base, block, number)
  local level, size = 0, 1
  while true do
    -- As in a buddy allocator: two gaps are one only where the number of the first is a multiple of both together.
    local is_first = floor(block / size) % 2 == 0
    local field = gap_field(base, level, is_first and block + size or block - size)
    local other = call('HGET', q.keys[BODIES], field)
    if not other then break end
    call('HDEL', q.keys[BODIES], field)
    if not is_first then block, number = block - size, other end
    level, size = level + 1, size * 2
  end
  call('HSET', q.keys[BODIES], gap_field(base, level, block), number)
end

-- Returns the first block behind the gap that a block is in, and the gap's field; where there is none, the next block.
function Gaps.behind_gap(q, base, block)
  local _, behind, _, field = Gaps.find_gap(q, base, block)
  return behind or block + 1, field
end
