-- An overflow: first in, first out, in blocks of at most 512 bytes, each a field of the hash `bodies`: its base and the
-- number of the block; in it "size:record" of each. An account spells it "head.offset.tail.size": the first block and
-- how much of it was taken, the last block and its size. '-' is an empty one.
Overflow.BLOCK = 512 -- bytes of a block; a longer record has a block to itself
local MOST_PASSED = 64 -- blocks without a message that one call passes over: gaps (gaps.lua), or deleted by hand

local function parse_overflow(text)
  local head, offset, tail, size = match(text, '^(%d+)%.(%d+)%.(%d+)%.(%d+)$')
  if not head then return {head = 0, offset = 0, tail = 0, size = 0} end
  return {head = head + 0, offset = offset + 0, tail = tail + 0, size = size + 0}
end

function Overflow.overflow_of(holder)
  local o = holder.overflow
  if not o then
    o = parse_overflow(holder.queue)
    holder.overflow = o
  end
  return o
end

function Overflow.spell_overflow(o)
  if o.size == 0 then return '-' end
  return spell(o.head) .. '.' .. spell(o.offset) .. '.' .. spell(o.tail) .. '.' .. spell(o.size)
end

function Overflow.block_field(base, number) return base .. spell(number) end

-- A block that this call has read or made; '' if there is none.
function Overflow.read_block(q, field)
  local blocks = q.blocks
  if not blocks then
    blocks = {}
    q.blocks, q.dirty = blocks, {}
  end
  local text = blocks[field]
  if not text then
    text = call('HGET', q.keys[BODIES], field) or ''
    blocks[field], q.has_read_bodies = text, true
  end
  return text
end

-- Reads blocks by one look.
function Overflow.load_blocks(q, fields)
  if #fields == 0 then return end
  if not q.blocks then q.blocks, q.dirty = {}, {} end
  q.has_read_bodies = true
  local texts = call('HMGET', q.keys[BODIES], unpack(fields)) -- at most 1,000: one for each message of a call
  for at, field in ipairs(fields) do q.blocks[field] = texts[at] or '' end
end

local function write_block(q, field, text)
  q.blocks[field], q.dirty[field] = text, true
end

-- Puts a record behind all others. It has two parts, so that a payload is copied once, into the block.
function Overflow.push_record(q, holder, base, head, payload)
  local o = Overflow.overflow_of(holder)
  local size = #head + #payload
  -- A full block is never written again by a write: so a message costs no more than a block, however long the overflow
  -- is.
  if o.size > 0 and o.size + size > Overflow.BLOCK then o.tail, o.size = o.tail + 1, 0 end
  local field = Overflow.block_field(base, o.tail)
  -- An empty one was never written, or is another one's from before: it is not read.
  local text = o.size == 0 and '' or Overflow.read_block(q, field)
  if not q.blocks then q.blocks, q.dirty = {}, {} end
  text = text .. spell(size) .. ':' .. head .. payload
  write_block(q, field, text)
  o.size = #text
end

local function end_overflow(o) o.head, o.offset, o.tail, o.size = 0, 0, 0, 0 end

-- A block has nothing any more. It is still there until the end of the call, but is not read again.
local function drop_block(q, base, number)
  local field = Overflow.block_field(base, number)
  add(q, 'used_up', field)
  -- Not dirty any more: `save_blocks` removes it, and must not write it again.
  q.dirty[field], q.blocks[field] = nil, ''
end

-- Leaves a block that was used up.
local function drop_head(q, o, base)
  drop_block(q, base, o.head)
  if o.head == o.tail then
    end_overflow(o)
  else
    o.head, o.offset = o.head + 1, 0
  end
end

-- Leaves the last block, which has no message any more, with the gaps before it.
local function drop_tail(q, o, base)
  drop_block(q, base, o.tail)
  o.tail = o.tail - 1
  for _ = 1, MOST_PASSED do
    if o.tail < o.head then return end_overflow(o) end
    o.size = #Overflow.read_block(q, Overflow.block_field(base, o.tail))
    if o.size > 0 then return end
    local first, _, _, gap = Gaps.find_gap(q, base, o.tail)
    if gap then add(q, 'used_up', gap) end
    o.tail = (first or o.tail) - 1
  end
  o.size = Overflow.BLOCK -- so that the next message gets a block of its own
end

-- Returns the text of the first block that has something, '' if there is none among the first ones.
local function head_block(q, o, base)
  for _ = 1, MOST_PASSED do
    if o.size == 0 then return '' end
    local text = Overflow.read_block(q, Overflow.block_field(base, o.head))
    if #text > o.offset then return text end
    if text ~= '' then
      drop_head(q, o, base)
    else
      local behind, gap = Gaps.behind_gap(q, base, o.head)
      if gap then add(q, 'used_up', gap) end
      o.head, o.offset = behind, 0
      if o.head > o.tail then end_overflow(o) end
    end
  end
  return ''
end

-- Returns the first record, and where the next one begins.
function Overflow.peek_record(q, holder, base)
  local o = Overflow.overflow_of(holder)
  local text = head_block(q, o, base)
  local size, from = match(text, '^(%d+):()', o.offset + 1)
  if not size then return nil end
  return sub(text, from, from + size - 1), from + size - 1
end

-- Returns where a record ends at or behind an offset, among those from one on: the offset may be one of an earlier
-- page, and records before it have been taken out since.
local function end_of_record(text, from, offset)
  while from < offset and from < #text do
    local size, begins = match(text, '^(%d+):()', from + 1)
    from = begins + size - 1
  end
  return from
end

-- Looks at records from a place on, without taking any: `each` is given the record and the place behind it, and says
-- whether to continue.
function Overflow.look_at_records(q, holder, base, block, offset, each)
  local o = Overflow.overflow_of(holder)
  if o.size == 0 then return end
  -- The place may be one of an earlier page, and records before the head have been taken since.
  if block < o.head or block == o.head and offset < o.offset then block, offset = o.head, o.offset end
  while block <= o.tail do
    local text = Overflow.read_block(q, Overflow.block_field(base, block))
    if offset > 0 then offset = end_of_record(text, block == o.head and o.offset or 0, offset) end
    while offset < #text do
      local size, from = match(text, '^(%d+):()', offset + 1)
      offset = from + size - 1
      if not each(sub(text, from, offset), block, offset) then return end
    end
    block, offset = text == '' and Gaps.behind_gap(q, base, block) or block + 1, 0
  end
end

-- Continues behind a record that was peeked at.
function Overflow.pass_record(q, holder, base, offset)
  local o = holder.overflow
  o.offset = offset
  if offset >= #Overflow.read_block(q, Overflow.block_field(base, o.head)) then drop_head(q, o, base) end
end

-- Takes a record out of the middle: of block `found.block`, from where to where. `first` is the number of the first
-- message of its block, for the gap that it may leave.
function Overflow.remove_record(q, holder, base, found, first)
  local o = holder.overflow
  local field = Overflow.block_field(base, found.block)
  local text = Overflow.read_block(q, field)
  text = sub(text, 1, found.from - 1) .. sub(text, found.upto + 1)
  -- Records that were taken are still in the text of the first block, before the offset.
  local offset = found.block == o.head and o.offset or 0
  if #text > offset then
    write_block(q, field, text)
    if found.block == o.tail then o.size = #text end
    return
  end
  -- At either end the overflow just becomes shorter. Inside, a gap says that the block is gone (gaps.lua).
  if found.block == o.head then return drop_head(q, o, base) end
  if found.block == o.tail then return drop_tail(q, o, base) end
  drop_block(q, base, found.block)
  Gaps.leave_gap(q, base, found.block, first)
end

-- Takes up to `number` records of messages out of the first block. `each` is given the id, the mark behind it, and what
-- follows. Returns how many.
function Overflow.pop_records(q, holder, base, number, each, out)
  local o = Overflow.overflow_of(holder)
  local text = head_block(q, o, base)
  local got, offset, length = 0, o.offset, #text
  while got < number and offset < length do
    local size, from, id, mark, rest = match(text, '^(%d+):()(%d+%-%d+)(.)()', offset + 1)
    offset, got = from + size - 1, got + 1
    each(q, holder, id, mark, sub(text, rest, offset), out)
  end
  if got > 0 then Overflow.pass_record(q, holder, base, offset) end
  return got
end

-- Takes up to `number` records out of the first block, as far as they are of messages up to this one, the number of the
-- last. `each` is given the id and mark of those that say more than themselves, and where `wants_all` of all. Returns
-- how many, and whether the first that is left is of a later one.
function Overflow.drop_records(q, holder, base, number, last, each, wants_all)
  local o = Overflow.overflow_of(holder)
  local text = head_block(q, o, base)
  local got, offset, length = 0, o.offset, #text
  local is_later = false
  while got < number and offset < length do
    local size, from, its_number, mark = match(text, '^(%d+):()%d+%-(%d+)(.)', offset + 1)
    if its_number + 0 > last then
      is_later = true
      break
    end
    offset, got = from + size - 1, got + 1
    if mark ~= '|' or wants_all then each(match(text, '^%d+%-%d+', from), mark) end
  end
  if got > 0 then Overflow.pass_record(q, holder, base, offset) end
  return got, is_later
end

-- Reads blocks from the first on by one look, unless they are known.
function Overflow.read_ahead(q, holder, base, number)
  local o = Overflow.overflow_of(holder)
  local fields = {}
  for block = o.head, min(o.tail, o.head + number - 1) do
    local field = Overflow.block_field(base, block)
    if not (q.blocks and q.blocks[field]) then fields[#fields + 1] = field end
  end
  if o.size > 0 then Overflow.load_blocks(q, fields) end
end

-- Writes down what became of blocks. Removals come first, since an overflow that was used up begins again with block 0.
function Overflow.save_blocks(q)
  send(q, 'used_up', 'HDEL', BODIES)
  if q.dirty then
    for field in pairs(q.dirty) do add(q, 'kept', field, q.blocks[field]) end
    q.dirty = {}
  end
  send(q, 'kept', 'HSET', BODIES)
end
