-- Actions: operations on many messages that operators have under way, such as a redrive by a filter. The process that
-- asks chooses the messages, and has them acted on a piece at a time: one call says that the action is still its own
-- (the fence), does the piece, and notes how far it is. So each message is acted on once, also if the process ends
-- half-way and another takes the action over, and one that comes back does nothing more.
--   The hash `actions` has under the id of an action four lines: "state holder heard step acted passed left_over done
-- all_passed left started number last letters", where the search for messages has come to, what went wrong, and what
-- was asked for, which only clients read. `step` counts pieces; `acted`, `passed` and `left_over` are the outcome of
-- the last one, which is the reply to a repetition of its call. `number` counts actions. An action is about what was
-- there when it began: messages up to `last`, time and number in the id of one, and dead letters up to the entry
-- `letters`. (The clock, which may be set back, does not tell that.) A holder that is silent for `LEASE` has lost it to
-- the next one that asks.
local LEASE = 30000 -- ms
local KEPT = 86400000 -- ms for which an action is remembered
local MAX_ACTIONS = 20
local LONGEST_SPEC = 16384 -- bytes of what was asked for
local ACTS = ' redrive delete_dead cancel retry_now '

local function parse_action(text)
  local head, position, problem, spec = match(text, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  local state, holder, heard, step, acted, passed, left_over, done, all_passed, left, started, number, bounds =
    match(head or '', '^(%l+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+%-%d+ %d+%-%d+)$')
  if not state then return nil end
  return {
    state = state, holder = holder, heard = heard + 0, step = step + 0, acted = acted + 0, passed = passed + 0,
    left_over = left_over + 0, done = done + 0, all_passed = all_passed + 0, left = left, started = started + 0,
    number = number + 0, bounds = bounds, position = position, problem = problem, spec = spec,
  }
end

local function spell_action(action)
  local head = concat({
    action.state, action.holder, spell(action.heard), spell(action.step), spell(action.acted), spell(action.passed),
    spell(action.left_over), spell(action.done), spell(action.all_passed), action.left, spell(action.started),
    spell(action.number), action.bounds,
  }, ' ')
  return concat({head, action.position, action.problem, action.spec}, '\n')
end

local function is_over(action) return action.state ~= 'running' and action.state ~= 'stopping' end

-- (A clock that was set back prolongs nothing: each holder that is there reports again.)
local function is_live(action, now) return not is_over(action) and abs(now - action.heard) < LEASE end

-- Returns all actions by id.
local function load_actions(key)
  local found = {}
  local all = call('HGETALL', key)
  for at = 1, #all, 2 do
    local action = all[at] ~= '' and parse_action(all[at + 1])
    if action then found[all[at]] = action end
  end
  return found
end

-- Forgets those that are over for so long, and of too many the one that began first and that nobody works on. (Their
-- numbers distinguish them: many are heard of in the same ms.)
local function forget_actions(key, actions, now)
  local kept, first = 0, nil
  for id, action in pairs(actions) do
    if not is_live(action, now) and abs(now - action.heard) >= KEPT then
      call('HDEL', key, id)
    else
      kept = kept + 1
      local is_earlier = not first or action.number < actions[first].number
      if not is_live(action, now) and is_earlier then first = id end
    end
  end
  if kept >= MAX_ACTIONS and first then call('HDEL', key, first) end
end

-- Returns the number of the next action.
local function next_number(actions)
  local latest = 0
  for _, action in pairs(actions) do latest = max(latest, action.number) end
  return latest + 1
end

-- Returns the last message that was written, and the last dead letter: "ms-n ms-n".
local function find_bounds(meta, dead)
  local last = match(call('HGET', meta, 'last') or '', '^%d+%-%d+$') or '0-0'
  local letter = call('XREVRANGE', dead, '+', '-', 'COUNT', 1)[1]
  return last .. ' ' .. (letter and letter[1] or '0-0')
end

-- Returns the id of an action that somebody works on, nil if nobody works on any.
local function live_one(actions, now)
  for id, action in pairs(actions) do
    if is_live(action, now) then return id end
  end
end

local function begin_action(KEYS, actions, id, holder, spec, now)
  local known = actions[id]
  if known and known.holder == holder then return {'OK', now, spell_action(known)} end -- it was begun by another try
  local other = live_one(actions, now)
  if other or known then return {'BUSY', other or id} end
  local bounds = find_bounds(KEYS[1], KEYS[3])
  forget_actions(KEYS[2], actions, now)
  local action = {
    state = 'running', holder = holder, heard = now, step = 0, acted = 0, passed = 0, left_over = 0, done = 0,
    all_passed = 0, left = '-', started = now, number = next_number(actions), bounds = bounds, position = '',
    problem = '', spec = spec,
  }
  call('HSET', KEYS[2], id, spell_action(action))
  return {'OK', now, spell_action(action)}
end

-- An action continues in another process. Its pieces are counted on; a call of the former holder is none of them. One
-- that is `adopted` was left behind by its process: nobody stopped it, and it did not fail.
local function take_action(key, actions, id, holder, now, adopted)
  local action = actions[id]
  if not action then return {'GONE'} end
  if action.holder == holder and not is_over(action) then return {'OK', now, spell_action(action)} end
  if is_live(action, now) then return {'RUNNING'} end
  if action.state == 'done' or adopted and action.state ~= 'running' then return {'OVER', action.state} end
  local other = live_one(actions, now)
  if other then return {'BUSY', other} end
  action.state, action.holder, action.heard, action.problem = 'running', holder, now, ''
  call('HSET', key, id, spell_action(action))
  return {'OK', now, spell_action(action)}
end

-- Notes in the journal that somebody stopped an action.
local function note_stopped(KEYS, who, now)
  local rules = Rules.rules_of(call('HGET', KEYS[1], 'rules'))
  Journal.tell({[META] = KEYS[1], [JOURNAL] = KEYS[4]}, rules, now, who, 's')
end

-- The process that works on an action stops with the next piece; one that nobody works on is stopped at once.
local function stop_action(KEYS, actions, id, who, now)
  local action = actions[id]
  if not action then return {'GONE'} end
  if not is_over(action) then
    local was = action.state
    action.state = is_live(action, now) and 'stopping' or 'stopped'
    call('HSET', KEYS[2], id, spell_action(action))
    if was == 'running' then note_stopped(KEYS, who, now) end
  end
  return {'OK', now, spell_action(action)}
end

-- @verb steer | allow-oom: begin an action, take one over that nobody works on any more, or stop one.
-- KEYS[1] meta: whether there is a queue, and its last message
-- KEYS[2] actions: what is under way
-- KEYS[3] dead: dead letters
-- KEYS[4] journal: what happened
-- ARGV[1] how: 'begin', 'take', 'adopt' (only one that nobody stopped, and that did not fail) or 'stop'
-- ARGV[2] id: of the action
-- ARGV[3] holder: a nonce of the process that works on it from now on
-- ARGV[4] spec: what is asked for, of one that begins
-- ARGV[5] who: the caller, and who asked for it (`Journal.who_of`)
-- Reply: {'OK', now, the action as it stands in `actions`} | {'BUSY', id of the one that is under way} | {'GONE'}:
--        there is none of this id | {'RUNNING'}: somebody works on it | {'OVER', its state} | {'NOQUEUE'}
function verbs.steer(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'actions', 'dead', 'journal'})
  Arguments.check(ARGV, {'word', 'word', 'word', 'record', 'who'})
  Arguments.check_word(ARGV, 1, ' begin take adopt stop ')
  if #ARGV[4] > LONGEST_SPEC then Arguments.refuse('argument 4 is too long') end
  if not call('HGET', KEYS[1], 'epoch') then return {'NOQUEUE'} end
  local now = read_time()
  local actions = load_actions(KEYS[2])
  if ARGV[1] == 'begin' then return begin_action(KEYS, actions, ARGV[2], ARGV[3], ARGV[4], now) end
  if ARGV[1] == 'take' then return take_action(KEYS[2], actions, ARGV[2], ARGV[3], now) end
  if ARGV[1] == 'adopt' then return take_action(KEYS[2], actions, ARGV[2], ARGV[3], now, true) end
  return stop_action(KEYS, actions, ARGV[2], ARGV[5], now)
end

-- @verb actions | no-writes: what operators have under way, and what they had on the last day.
-- KEYS[1] meta: whether there is a queue
-- KEYS[2] actions: what is under way
-- Reply: {now, {id, the action as it stands there, ...}} | 'NOQUEUE'
function verbs.actions(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'actions'})
  if not call('HGET', KEYS[1], 'epoch') then return 'NOQUEUE' end
  return {read_time(), call('HGETALL', KEYS[2])}
end

-- Says whether a message is as it was when it was chosen: where it is, and how often it was delivered. (Of one in
-- flight only where: its lease would have to be looked for.)
local function is_unchanged(q, found, state, deliveries)
  if not found or found.state == 'dead' then return false end
  local at = found.at
  local now = found.state
  if now == 'delayed' and at.due <= q.now or now ~= 'delayed' and now ~= 'in_flight' then now = 'waiting' end
  if now ~= state then return false end
  if now == 'in_flight' then return true end
  local _, _, attributes = Messages.head_of_body(found.body)
  return (at and at.attempts or 0) + Messages.deliveries_before(attributes) == deliveries
end

-- Makes a message deliverable at once that waits for its next try.
local function retry_message(q, full_id, found)
  local at = found.at
  if not at or not Due.is_retrying(spell(at.attempts) .. at.flags) then return false end
  Places.take_out(q, found)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, found.key))
  Waiting.give_back(q, a, found.key, found.place, found.id, spell(at.attempts) .. at.flags)
  Notifications.notify_reader(q)
  local _, _, attributes = Messages.head_of_body(found.body)
  Journal.note_event(q, 'm', full_id, found.key, at.attempts + Messages.deliveries_before(attributes))
  return true
end

local FIRST = 10 -- argument of the first row
local WIDTH = 6 -- arguments of a row

-- Acts on messages that are as they were. Returns how many. A message that stands in two rows is acted on once, by
-- whatever ids.
local function act_on_messages(q, ARGV, kind)
  local acted, seen = 0, {}
  for at = FIRST, #ARGV, WIDTH do
    local full_id, origin, id, key = unpack(ARGV, at, at + 3) -- at most 4: the words
    local found = Places.find(q, full_id, origin, id, key)
    local place = found and found.place and found.place .. ':' .. found.id
    if place and not seen[place] and is_unchanged(q, found, ARGV[at + 4], ARGV[at + 5] + 0) then
      seen[place] = true
      local is_done
      if kind == 'retry_now' then
        is_done = retry_message(q, full_id, found)
      else
        local was = Operate.cancel_message(q, full_id, origin, id, key)
        is_done = was == 'removed' or was == 'in flight'
      end
      if is_done then acted = acted + 1 end
    end
  end
  return acted
end

-- Acts on dead letters. Returns how many, and how many it left for want of room.
local function act_on_letters(q, ARGV, kind)
  local entry_ids = {}
  for at = FIRST, #ARGV, WIDTH do entry_ids[#entry_ids + 1] = ARGV[at + 2] end
  if kind == 'redrive' then return Letters.restore_all(q, entry_ids, 1) end
  local deleted = 0
  for _, entry_id in ipairs(entry_ids) do
    if DeadLetters.delete_letter(q, entry_id) then deleted = deleted + 1 end
  end
  if deleted > 0 then State.count_up(q, 'dead_deleted', deleted) end
  return deleted, 0
end

-- Does a piece, and notes in the action what became of it.
local function do_piece(q, ARGV, action, kind)
  local number = (#ARGV - FIRST + 1) / WIDTH
  local acted, left_over = 0, 0
  if kind == 'redrive' or kind == 'delete_dead' then
    acted, left_over = act_on_letters(q, ARGV, kind)
  else
    acted = act_on_messages(q, ARGV, kind)
  end
  action.step, action.acted, action.left_over = action.step + 1, acted, left_over
  action.passed = number - acted - left_over
  action.done, action.all_passed = action.done + acted, action.all_passed + action.passed
end

-- @verb act | allow-oom: do a piece of an action, if it is still the caller's: act on these messages or dead letters,
-- as far as they are as they were. Without any it only says that the caller is there, or ends the action.
-- KEYS[1..19]: the first 19 of a queue (base.lua)
-- KEYS[20] actions: what is under way
-- KEYS[21..] streams: those that the ids name
-- ARGV[1] id: of the action
-- ARGV[2] holder: the nonce of the caller
-- ARGV[3] step: how many pieces were done before this one
-- ARGV[4] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[5] kind: 'redrive', 'delete_dead', 'cancel' or 'retry_now'
-- ARGV[6] state: of the action from now on: 'running', 'done', 'stopped' or 'failed'
-- ARGV[7] position: where the search for messages has come to
-- ARGV[8] left: about how many are to come, '-' if not known
-- ARGV[9] problem: why it failed, '' if it did not
-- ARGV[10..] rows: six for each message: its id, the last part of that ('o' without the shard key), the rest, the shard
--            key in it or ''; its state ('waiting', 'delayed', 'in_flight') and deliveries when it was chosen. Of a
--            dead letter only the third counts: its entry id
-- Reply: {'OK', state of the action, how many it acted on, how many it passed over, how many it left for want of
--        room}
--        | {'LOST'}: it is another one's by now, or is not known | {'NOQUEUE'}
function verbs.act(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 19, 'actions')
  Arguments.check(ARGV, {'word', 'word', 'number', 'who', 'word', 'word', 'line', 'left', 'line'},
    {'message_id', 'origin', 'id', 'key_or_none', 'word', 'number'}, 100)
  Arguments.check_word(ARGV, 5, ACTS)
  Arguments.check_word(ARGV, 6, ' running done stopped failed ')
  local q = Settle.open_change(KEYS, 20)
  if not q then return {'NOQUEUE'} end
  local action = parse_action(call('HGET', KEYS[20], ARGV[1]) or '')
  if not action or action.holder ~= ARGV[2] then return {'LOST'} end
  local step = ARGV[3] + 0
  if action.step == step + 1 then -- an earlier try of this call did it
    return {'OK', action.state, action.acted, action.passed, action.left_over}
  end
  if action.step ~= step or is_over(action) then return {'LOST'} end
  Types.look_at_all(q)
  do_piece(q, ARGV, action, ARGV[5])
  if ARGV[6] ~= 'running' then action.state = ARGV[6] end
  if action.left_over == 0 then action.position = ARGV[7] end -- else the next holder begins with these
  action.heard, action.left, action.problem = q.now, ARGV[8], ARGV[9]
  call('HSET', KEYS[20], ARGV[1], spell_action(action))
  if q.failed then Failures.save(q) end
  Settle.close_change(q, ARGV[4])
  return {'OK', action.state, action.acted, action.passed, action.left_over}
end
