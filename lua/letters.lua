-- Verbs of dead letters: dead, delete_dead, redrive.

-- @verb dead | no-writes: list dead letters, oldest first.
-- KEYS[1] meta: whether there is a queue
-- KEYS[2] dead: dead letters
-- ARGV[1] after: entry id to continue after, '-' for the start
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
-- KEYS[5] producers: who made calls with numbers, by the end of their memory
-- KEYS[6] failures: what fails, in groups
-- ARGV[1] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[2] number: of this call (`read_number`): it is done once, however often it is tried
-- ARGV[3] age: least ms since they died, for a deletion by age; 'ttl' = what the queue says; '' = none
-- ARGV[4] most: by age
-- ARGV[5] count: of message ids
-- ARGV[6..] names: message ids, then entry ids
-- Reply: {'OK', "how many were deleted|1 when there may be more that died so long ago"} | {'STALE'}
--        | {'FULL', 'max_producers'}
function verbs.delete_dead(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'dead', 'moved', 'journal', 'producers', 'failures'})
  Arguments.check(ARGV, {'who', 'call_number', 'age', 'count', 'count'}, {'letter'}, 1000)
  check_types({KEYS[3]}, {}, {KEYS[2], KEYS[4]})
  local producer, number, keep = Producers.read_number(ARGV[2])
  local keys = {
    [META] = KEYS[1], [DEAD] = KEYS[2], [MOVED] = KEYS[3], [JOURNAL] = KEYS[4], [PRODUCERS] = KEYS[5],
    [FAILURES] = KEYS[6],
  }
  local q = State.open_call(keys, 6, 'dead_ttl', producer or '')
  if not q then return {'OK', '0|0'} end
  local answer = producer and Producers.check_call(q, number, keep, q.values[State.COMMON + 2])
  if answer then return answer end
  if q.rules.journal > 0 then Journal.begin_events(q) end
  local deleted = delete_named(q, ARGV, 6, ARGV[5] + 0)
  local old, has_more = 0, false
  local age = ARGV[3] == 'ttl' and (q.values[State.COMMON + 1] or '') or ARGV[3]
  if age ~= '' then old, has_more = delete_old(q, age + 0, ARGV[4] + 0) end
  deleted = deleted + old
  if deleted > 0 then State.count_up(q, 'dead_deleted', deleted) end
  local told = deleted .. (has_more and '|1' or '|0')
  Producers.end_call(q, producer, told)
  if q.changed_shares then Shares.note(q) end
  State.save_state(q)
  if q.failed then Failures.save(q) end
  Journal.save_events(q, ARGV[1])
  return {'OK', told}
end

-- Returns the body that a dead letter becomes again, and the payload if that lies by itself. Its deadline and its due
-- time are over; the deliveries so far stay.
local function restored_body(letter, origin)
  local attributes = ' c' .. letter[6]
  local key, tag = letter[10], letter[11]
  if tag ~= 'l' then
    local headers = letter[13] == 'h' and letter[14] or letter[15] == 'h' and letter[16] or ''
    return Messages.spell_body(origin, key, Messages.spell_tail(attributes, '', tag, headers), letter[12])
  end
  return Messages.spell_foreign(origin, key, attributes, letter, letter[13] == 'm' and 15 or 13)
end

-- Returns under which id a message lies in `bodies`, and its origin; nil if this is no id.
local function read_id(message_id)
  local id, origin = match(message_id, '^(%d+%-%d+)%-(%w+)')
  return id and Messages.inner_id(id, origin), origin
end

-- Returns the fields of a dead letter that can become a message again, nil if it is gone, or is none.
local function letter_of(q, entry_id)
  local entry = call('XRANGE', q.keys[DEAD], entry_id, entry_id)[1]
  local letter = entry and entry[2] or {}
  local is_ours = letter[1] == 'i' and letter[3] == 'r' and letter[5] == 'c' and letter[7] == 'e' and #letter >= 12
  local id = is_ours and read_id(letter[2])
  -- A message lies in one place only: where it is there again, this is a second letter of it.
  return id and call('HEXISTS', q.keys[BODIES], id) == 0 and letter or nil
end

-- Makes a message of a dead letter again.
local function restore(q, a, entry_id, letter)
  local id, origin = read_id(letter[2])
  -- The letter goes before the body is there: types were looked at (`redrive`), so nothing fails between them.
  call('XDEL', q.keys[DEAD], entry_id)
  local known, number, kind = DeadLetters.entry_of(q.keys[MOVED], letter[2])
  if known == entry_id then DeadLetters.forget_letter(q, letter[2], letter[10], number, kind) end
  Messages.write_body(q, id, restored_body(letter, origin))
  local flags = ''
  if letter[8] ~= '' then
    -- Its last error stays with it, as if it had been given back.
    local class, reason = match(DeadLetters.group_of(letter), '|([^|]*)|(.*)$')
    if reason == 'rejected' or reason == 'dead' then reason = '' end
    local kind = class and Failures.spell_kind(class, reason) or ''
    call('HSET', q.keys[ERRORS], id, concat({'', kind, letter[8]}, '|'))
    flags = 'e'
  end
  DeadLetters.leave_group(q, entry_id, letter)
  Waiting.give_back(q, a, letter[10], 'd', id, '0' .. flags)
  Notifications.notify_reader(q)
  State.count_up(q, 'redriven', 1)
  Journal.note_event(q, 'v', letter[2], letter[10], letter[6])
end

-- Says whether the queue may hold one more message of a tenant, by the rule of its writes; `room` is what is free.
local function has_place(q, a, room)
  local own = q.rules.window > 0 and a.taken + a.behind + a.delayed + a.flight or 0
  return Shares.may_use(own, room, 1, q.rules.max_len)
end

-- Makes messages of these dead letters again (a list has them from `first` on), of as many as there is room for.
-- Returns how many, and how many it left.
function Letters.restore_all(q, entry_ids, first)
  local moved, left, seen = 0, 0, {}
  local bound = q.rules.max_len
  local room = bound > 0 and bound - State.count_living(q.keys, q.shared, q.behind, q.odd) or nil
  for at = first, #entry_ids do
    local entry_id = entry_ids[at]
    local letter = not seen[entry_id] and letter_of(q, entry_id)
    seen[entry_id] = true
    local a = letter and Accounts.find_account(q, Rules.owner_of(q.rules, letter[10]))
    if letter and room and not has_place(q, a, room - moved) then
      left = left + 1
    elseif letter then
      restore(q, a, entry_id, letter)
      moved = moved + 1
    end
  end
  return moved, left
end

-- @verb redrive | allow-oom: move dead letters back into the queue, to be delivered at once, as far as it has room.
-- Their ids and headers stay.
-- KEYS[1..19]: the first 19 of a queue (base.lua)
-- ARGV[1] number: of this call (`read_number`): it is done once, however often it is tried
-- ARGV[2] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[3..] dead_letters: their entry ids in `dead`; one that is gone, or is no dead letter, or comes again, or whose
--            message is there, is passed over
-- Reply: {'OK', "how many were moved|how many were left for want of room|how many messages there may be"} | {'STALE'}
--        | {'FULL', 'max_producers'}
function verbs.redrive(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 19)
  Arguments.check(ARGV, {'call_number', 'who'}, {'id'}, 250)
  local producer, number, keep = Producers.read_number(ARGV[1])
  local q = Settle.open_change(KEYS, 19, producer or '')
  if not q then return {'OK', '0|0|0'} end
  Types.look_at_all(q)
  local answer = producer and Producers.check_call(q, number, keep, q.values[State.COMMON + 1])
  if answer then return answer end
  local moved, left = Letters.restore_all(q, ARGV, 3)
  local told = concat({moved, left, q.rules.max_len}, '|')
  Producers.end_call(q, producer, told)
  if q.failed then Failures.save(q) end
  Settle.close_change(q, ARGV[2])
  return {'OK', told}
end
