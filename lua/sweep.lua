-- Verbs that read all that a queue holds outside of its streams, a piece in each call: holders, alone, states, sample.
-- They only read. A reader that asks for them in this order misses no message: messages that leave an overflow lie by
-- themselves from then on, and HSCAN returns every field that is there from its beginning to its end. Blocks and bodies
-- it reads by plain commands, which takes a fifth of the time.
local SCANNED_WITH_BODIES = 10 -- where HSCAN cannot leave out the values, it looks at fewer by this factor

-- Returns a piece of the names in `bodies`: where to continue, a list, and the distance of the names in it.
local function scan_names(key, cursor, count)
  local page = pcall_redis('HSCAN', key, cursor, 'COUNT', count, 'NOVALUES')
  if not page.err then return page[1], page[2], 1 end
  page = call('HSCAN', key, cursor, 'COUNT', ceil(count / SCANNED_WITH_BODIES)) -- before Redis 7.4
  return page[1], page[2], 2
end

-- @verb holders | no-writes: a page of the shard keys that may have an overflow.
-- KEYS[1] meta: the accounts
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many fields to look at
-- ARGV[3..] shard_keys: look at these instead
-- Reply: {cursor to continue from, '0' at the end, {shard key, a text with what is known of its overflow, ...}}
function verbs.holders(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check(ARGV, {'cursor', 'count'}, {'key'}, 1000)
  local rules = call('HGET', KEYS[1], 'rules')
  if not rules then return {'0', {}} end
  local kind = Rules.rules_of(rules).parents and 'c:' or 't:' -- (a parent's own overflow is the ring of its children)
  local page = {'0', {}}
  local found = {}
  for at = 3, #ARGV do
    page[2][2 * at - 5], page[2][2 * at - 4] = kind .. ARGV[at], call('HGET', KEYS[1], kind .. ARGV[at]) or ''
  end
  if #ARGV == 2 then page = call('HSCAN', KEYS[1], ARGV[1], 'MATCH', kind .. '*', 'COUNT', ARGV[2]) end
  for at = 1, #page[2], 2 do
    local text = page[2][at + 1]
    local may_have_one = kind == 'c:' or find(text, '[ :]%d+%.%d+%.%d+%.%d+$')
    if may_have_one then found[#found + 1], found[#found + 2] = sub(page[2][at], 3), text end
  end
  return {page[1], found}
end

-- @verb alone | no-writes: a page of the ids of messages that lie by themselves.
-- KEYS[1] bodies: those outside of the streams
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: {cursor to continue from, '0' at the end, {entry id, ...}}. An id may come twice
function verbs.alone(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'bodies'})
  Arguments.check(ARGV, {'cursor', 'count'})
  local cursor, names, stride = scan_names(KEYS[1], ARGV[1], ARGV[2])
  local found = {}
  for at = 1, #names, stride do
    local first = byte(names[at]) -- of an id that is a digit, of a block a letter
    if first and first < 58 then found[#found + 1] = names[at] end
  end
  return {cursor, found}
end

-- Returns what is known of a message that is there: see `states`.
local function spell_state(q, found)
  local at = found.at or {attempts = 0, flags = found.state == 'in_flight' and 'e' or ''}
  local error = DeadLetters.error_of(q, found.id, at.flags)
  local state = found.state == 'ended' and 'returned' or found.state
  local payload = found.payload
  if not payload and Messages.is_apart(found.body) then
    payload = call('HGET', q.keys[BODIES], Messages.field_of_payload(found.id)) or ''
  end
  return {state, at.attempts, at.due and spell(at.due) or '', error, found.body, payload}
end

-- @verb states | no-writes: read messages by where they lie, with the state of each.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: where those lie that are in one
-- ARGV[1] bytes: that is enough
-- ARGV[2..] places: "place:entry id"
-- Reply: {{'new' | 'held' | 'returned' | 'delayed' | 'in_flight', deliveries before, when it comes due in ms ('': it is
--        not delayed), last error, body, its payload if that lies by itself} or false for one that is gone, ...}; of
--        fewer than were asked for if these are large
function verbs.states(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'bytes'}, {'place'}, 1000)
  local q = State.open_call(KEYS, 18)
  local rows, size = {}, 0
  for at = 2, #ARGV do
    local place, id = match(ARGV[at], '^(%w+):(.*)$')
    local found = q and Places.find(q, '', place, id, '')
    local row = found and spell_state(q, found) or false
    rows[at - 1] = row
    size = size + (row and #row[5] + #(row[6] or '') or 0)
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
  Arguments.check_keys(KEYS, {'bodies'})
  Arguments.check(ARGV, {'few'})
  local found = {}
  for _, name in ipairs(call('HRANDFIELD', KEYS[1], -ARGV[1])) do
    if find(name, '^%d+%-%d+$') then
      found[#found + 1] = name
    elseif byte(name) == 109 then -- 'm', a block
      local text = call('HGET', KEYS[1], name)
      local at = 1
      while at <= #text do
        local size, from, id = match(text, '^(%d+):()(%d+%-%d+)', at)
        found[#found + 1], at = id, from + size
      end
    end
  end
  return found
end
