-- Verbs that read all that a queue holds outside of its streams, a piece in each call: holders, blocks, alone, states,
-- sample. They only read. A reader that asks for them in this order misses no message: what leaves an overflow lies by
-- itself from then on, and HSCAN returns every field that is there from its beginning to its end.
local SCANNED_WITH_BODIES = 10 -- where HSCAN cannot leave out the values, it looks at so many times less

-- Returns a piece of the names in `bodies`: where to go on, a list, and the distance of the names in it.
local function scan_names(key, cursor, count)
  local page = pcall_redis('HSCAN', key, cursor, 'COUNT', count, 'NOVALUES')
  if not page.err then return page[1], page[2], 1 end
  page = call('HSCAN', key, cursor, 'COUNT', ceil(count / SCANNED_WITH_BODIES)) -- before Redis 7.4
  return page[1], page[2], 2
end

-- @verb holders | no-writes: a page of the shard keys that have an overflow.
-- KEYS[1] meta: the accounts
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: {cursor to go on from, '0' at the end, {shard key, ...}}
function verbs.holders(KEYS, ARGV)
  if not call then begin() end
  local rules = call('HGET', KEYS[1], 'rules')
  if not rules then return {'0', {}} end
  local kind = Rules.rules_of(rules).parents and 'c:' or 't:' -- (a parent's own overflow is the ring of its children)
  local page, found = call('HSCAN', KEYS[1], ARGV[1], 'MATCH', kind .. '*', 'COUNT', ARGV[2]), {}
  for at = 1, #page[2], 2 do
    if find(page[2][at + 1], ' %d+%.%d+%.%d+%.%d+$') then found[#found + 1] = sub(page[2][at], 3) end
  end
  return {page[1], found}
end

-- Returns what a block has after an id.
local function text_after(text, id)
  local at = 1
  while at <= #text and not Places.is_above(Places.first_id(text, at - 1), id) do
    local size, from = match(text, '^(%d+):()', at)
    at = from + size
  end
  return sub(text, at)
end

-- Reads what one overflow has after an id, block by block, up to another one. Returns whether that is all.
local function read_blocks(q, holder, after, upto, list)
  local o, base = Overflow.overflow_of(holder), Waiting.overflow_base(holder.name)
  if o.size == 0 then return true end
  local texts, first, is_all = {}, Places.find_block(q, o, base, after) or o.head, true
  for number = first, o.tail do
    local text = Overflow.read_block(q, Overflow.block_field(base, number))
    if number == o.head then text = sub(text, o.offset + 1) end
    if number == first then text = text_after(text, after) end
    local id = Places.first_id(text, 0)
    if id and Places.is_above(id, upto) then break end
    if list.seen >= list.bytes then
      is_all = false
      break
    end
    texts[#texts + 1], list.seen = text, list.seen + #text
  end
  if #texts > 0 then list.rows[#list.rows + 1], list.rows[#list.rows + 2] = holder.name, concat(texts) end
  return is_all
end

-- @verb blocks | no-writes: read the overflows of some shard keys, one after the other: what stands after an id and up
-- to another, and some more.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] bytes: after so many no more are read
-- ARGV[2] begun: the id of the first shard key: it goes on there
-- ARGV[3] after: that of the others
-- ARGV[4] upto: the last id
-- ARGV[5..] shard_keys: whose overflows
-- Reply: {how many of the shard keys were read whole, {shard key, "size:record" of each record, ...}}
function verbs.blocks(KEYS, ARGV)
  if not call then begin() end
  local q, list = State.open_call(KEYS, State.fields_of_settle(), 18), {rows = {}, seen = 0, bytes = ARGV[1] + 0}
  if not q then return {#ARGV - 4, {}} end
  for at = 5, #ARGV do
    local key = ARGV[at]
    local holder = q.rules.parents and Waiting.child_of(q, key) or Accounts.find_account(q, key)
    if not read_blocks(q, holder, ARGV[at == 5 and 2 or 3], ARGV[4], list) then return {at - 5, list.rows} end
  end
  return {#ARGV - 4, list.rows}
end

-- @verb alone | no-writes: a page of the ids of messages that lie by themselves, after an id and up to another.
-- KEYS[1] bodies: those outside of the streams
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- ARGV[3] after: an entry id
-- ARGV[4] upto: another one
-- Reply: {cursor to go on from, '0' at the end, {entry id, ...}}. An id may come twice
function verbs.alone(KEYS, ARGV)
  if not call then begin() end
  local cursor, names, stride = scan_names(KEYS[1], ARGV[1], ARGV[2])
  local found, after, upto = {}, ARGV[3], ARGV[4]
  for at = 1, #names, stride do
    local name = names[at]
    if find(name, '^%d+%-%d+$') and Places.is_above(name, after) and not Places.is_above(name, upto) then
      found[#found + 1] = name
    end
  end
  return {cursor, found}
end

-- Returns what is known of a message that is there: see `states`.
local function spell_state(q, found)
  local at = found.at or {attempts = 0, flags = found.state == 'in_flight' and 'e' or ''}
  local error = DeadLetters.error_of(q, found.id, at.flags)
  return {found.state, at.attempts, at.due and spell(at.due) or '', error, found.body}
end

-- @verb states | no-writes: read messages by where they lie, with the state of each.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: of those that lie in one
-- ARGV[1] bytes: so many are enough
-- ARGV[2..] places: "place:entry id"
-- Reply: {{'new' | 'held' | 'returned' | 'delayed' | 'in_flight', deliveries before, when it comes due in ms ('': it is
--        not delayed), last error, body} or false for one that is gone, ...}; of fewer than were asked for if these are
--        large
function verbs.states(KEYS, ARGV)
  if not call then begin() end
  local q, rows, size = State.open_call(KEYS, State.fields_of_settle(), 18), {}, 0
  for at = 2, #ARGV do
    local place, id = match(ARGV[at], '^(%w+):(.*)$')
    local found = q and Places.find(q, '', place, id, '')
    rows[at - 1] = found and spell_state(q, found) or false
    size = size + (found and #found.body or 0)
    if size >= ARGV[1] + 0 then break end
  end
  return rows
end

-- @verb sample | no-writes: ids of some of the messages outside of the streams, by chance.
-- KEYS[1] bodies: those outside of the streams
-- ARGV[1] count: of fields to look at. A block has the ids of its messages
-- Reply: {entry id, ...}
function verbs.sample(KEYS, ARGV)
  if not call then begin() end
  local found = {}
  for _, name in ipairs(call('HRANDFIELD', KEYS[1], -ARGV[1])) do
    if find(name, '^%d+%-%d+$') then
      found[#found + 1] = name
    elseif byte(name) == 109 then -- 'm', a block
      local text, at = call('HGET', KEYS[1], name), 1
      while at <= #text do
        local size, from, id = match(text, '^(%d+):()(%d+%-%d+)', at)
        found[#found + 1], at = id, from + size
      end
    end
  end
  return found
end
