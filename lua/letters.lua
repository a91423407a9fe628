-- Verbs of dead letters: dead, delete_dead, redrive.

-- @verb dead | no-writes: list dead letters, oldest first.
-- KEYS[1] meta: whether there is a queue
-- KEYS[2] dead: dead letters
-- ARGV[1] after: entry id to go on after, '-' for the start
-- ARGV[2] most: how many
-- Reply: {{entry id, {field, value, ...}}, ...} | 'NOQUEUE'
function verbs.dead(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'dead'})
  Arguments.check(ARGV, {'id_or_start', 'count'})
  if not call('HGET', KEYS[1], 'epoch') then return 'NOQUEUE' end
  return call('XRANGE', KEYS[2], ARGV[1] == '-' and '-' or '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
end

-- Deletes the letters that are named: message ids first, then entry ids. Returns how many there were.
local function delete_named(q, ARGV, first, ids)
  local deleted = 0
  for at = first, #ARGV do
    local entry_id = ARGV[at]
    if at < first + ids then entry_id = DeadLetters.entry_of(q.keys[MOVED], entry_id) end
    if entry_id and DeadLetters.delete_letter(q, entry_id) then deleted = deleted + 1 end
  end
  return deleted
end

-- Deletes a piece of the letters that died so long ago. Returns how many, and whether there may be more.
local function delete_old(q, age, most)
  local found = most > 0 and call('XRANGE', q.keys[DEAD], '-', '(' .. spell(max(0, q.now - age) + 1), 'COUNT', most)
  if not found then return 0, false end
  local deleted = 0
  for _, entry in ipairs(found) do
    if DeadLetters.delete_letter(q, entry[1]) then deleted = deleted + 1 end
  end
  return deleted, #found == most and #found > 0
end

-- @verb delete_dead | allow-oom: delete dead letters for good: those with these message ids, these entries, or those
-- that died long ago.
-- KEYS[1] meta: counters, for how long dead letters are kept
-- KEYS[2] dead: dead letters
-- KEYS[3] moved: where a dead letter lies, by message id
-- KEYS[4] journal: what happened to the messages
-- ARGV[1] client: what the journal calls the caller
-- ARGV[2] age: ms since they died, at least, of those that are deleted by age; 'ttl' = what the queue says; '' = none
-- ARGV[3] most: by age
-- ARGV[4] count: of message ids
-- ARGV[5..] names: message ids, then entry ids
-- Reply: {how many were deleted, 1 when there may be more that died so long ago}
function verbs.delete_dead(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'dead', 'moved', 'journal'})
  Arguments.check(ARGV, {'client', 'age', 'count', 'count'}, {'letter'}, 1000)
  check_types({KEYS[1], KEYS[3]}, {}, {KEYS[2], KEYS[4]})
  local text, dead_ttl = unpack(call('HMGET', KEYS[1], 'rules', 'dead_ttl')) -- at most 2: the fields
  if not text then return {0, 0} end
  local q = new_q{
    keys = {[META] = KEYS[1], [DEAD] = KEYS[2], [MOVED] = KEYS[3], [JOURNAL] = KEYS[4]},
    rules = Rules.rules_of(text), now = read_time(),
  }
  if q.rules.journal > 0 then Journal.begin_events(q) end
  local deleted = delete_named(q, ARGV, 5, ARGV[4] + 0)
  local old, has_more = 0, false
  local age = ARGV[2] == 'ttl' and (dead_ttl or '') or ARGV[2]
  if age ~= '' then old, has_more = delete_old(q, age + 0, ARGV[3] + 0) end
  deleted = deleted + old
  if deleted > 0 then call('HINCRBY', KEYS[1], 'dead_deleted', deleted) end
  Shares.save(KEYS[1], q)
  Journal.save_events(q, ARGV[1])
  return {deleted, has_more and 1 or 0}
end

-- Returns the body that a dead letter becomes again. Its deadline and its due time are over; the deliveries so far
-- stay.
local function restored_body(letter, origin)
  local attributes = ' c' .. letter[6]
  local key, tag = letter[10], letter[11]
  if tag ~= 'l' then
    local headers = letter[13] == 'h' and letter[14] or letter[15] == 'h' and letter[16] or ''
    return Messages.spell_body(origin, key, Messages.spell_tail(attributes, '', tag, headers, letter[12]))
  end
  local parts = {}
  for at = letter[13] == 'm' and 15 or 13, #letter do parts[#parts + 1] = #letter[at] .. ':' .. letter[at] end
  return Messages.spell_body(origin, key, Messages.spell_tail(attributes, '', tag, '', concat(parts)))
end

-- Returns under which id a message lies in `bodies`, and its origin; nil if this is no id.
local function read_id(message_id)
  local id, origin = match(message_id, '^(%d+%-%d+)%-(%w+)')
  return id and Messages.inner_id(id, origin), origin
end

local function has_body(q, id) return call('HEXISTS', q.keys[BODIES], id) == 1 end

-- Makes a message of a dead letter again. Returns whether it did.
local function restore(q, entry_id)
  local entry = call('XRANGE', q.keys[DEAD], entry_id, entry_id)[1]
  local letter = entry and entry[2] or {}
  local is_ours = letter[1] == 'i' and letter[3] == 'r' and letter[5] == 'c' and letter[7] == 'e' and #letter >= 12
  if not is_ours then return false end
  local id, origin = read_id(letter[2])
  -- A message lies in one place only: where it is there again, this is a second letter of it.
  if not id or has_body(q, id) then return false end
  -- The letter goes before the body is there: types were looked at (`redrive`), so nothing fails between them.
  call('XDEL', q.keys[DEAD], entry_id)
  local known, number, kind = DeadLetters.entry_of(q.keys[MOVED], letter[2])
  if known == entry_id then DeadLetters.forget_letter(q, letter[2], letter[10], number, kind) end
  call('HSET', q.keys[BODIES], id, restored_body(letter, origin))
  local flags = ''
  if letter[8] ~= '' then
    -- Its last error stays with it, as if it had been given back.
    call('HSET', q.keys[ERRORS], id, '||' .. letter[8])
    flags = 'e'
  end
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, letter[10]))
  Waiting.give_back(q, a, letter[10], 'd', id, '0' .. flags)
  Notifications.notify_reader(q)
  State.count_up(q, 'redriven', 1)
  Journal.note_event(q, 'v', letter[2], letter[10], letter[6])
  return true
end

-- @verb redrive | allow-oom: move dead letters back into the queue, to be delivered at once. Their ids and headers
-- stay.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] client: what the journal calls the caller
-- ARGV[3..] dead_letters: two each: entry id in `dead`, message id
-- Reply: how many were moved, each once. An entry that is gone, or is no dead letter, or whose message is there, is
--        left out; a repeated call counts those that the first try moved
function verbs.redrive(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'flag', 'client'}, {'id', 'message_id'}, 250)
  local q = Settle.open_change(KEYS)
  local count, seen = 0, {}
  if not q then return 0 end
  Types.look_at_all(q)
  for at = 3, #ARGV, 2 do
    local entry_id = ARGV[at]
    if not seen[entry_id] then
      seen[entry_id] = true
      local is_moved = restore(q, entry_id)
      -- Its letter is gone, but the message is there: the first try moved it.
      if not is_moved and ARGV[1] == '1' then
        local id = read_id(ARGV[at + 1])
        is_moved = id and has_body(q, id)
      end
      if is_moved then count = count + 1 end
    end
  end
  Settle.close_change(q, ARGV[2])
  return count
end
