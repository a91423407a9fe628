-- Verbs of operators and of single messages: limit, weigh, limits, weights, pause, cancel, replace.

-- Behind the limits of a shard key, the list `limits` says by whom they were given: a line each of the pause, the
-- limits and the weight, "p", "l" or "w" and "since\31by\31note".

-- Spells such a "since\31by\31note" of what is given now, from what the caller says of itself.
local function spell_who(now, said)
  local by, note = Journal.who_of(said)
  return spell(now) .. '\31' .. by .. '\31' .. note
end

-- Gives an account other limits of its own.
local function change_limits(q, a, parts)
  Limits.put_limits(q, a, parts)
  a.look_at = 0
  -- Its moment in `due` is noted again: that of a delayed message, too, which the next read finds.
  if a.delayed > 0 then a.next_at = q.now end
end

-- Reads who gave what, by its letter.
local function read_whos(text)
  local whos = {}
  for letter, who in gmatch(text or '', '\n(%l)([^\n]*)') do whos[letter] = who end
  return whos
end

-- Returns the lines of those who gave what such parts have.
local function spell_whos(parts, whos)
  local lines = ''
  local note = function(letter, has)
    if has and whos[letter] then lines = lines .. '\n' .. letter .. whos[letter] end
  end
  note('p', parts[4] ~= '0')
  note('l', concat(parts, '', 1, 3) ~= '')
  note('w', parts[6] ~= '1')
  return lines
end

-- Writes down what has changed. `changed` says of each name which letters did.
local function close_limits(q, key, said, following, changed)
  local who = spell_who(q.now, said)
  local released = 1
  local before = #q.names > 0 and call('HMGET', key, unpack(q.names)) or {} -- at most 1,000: the changes of a call
  for at, name in ipairs(q.names) do
    local a = q.accounts[name]
    -- Those who list limits find them here, as they are after the last change of an account that comes twice.
    if a.limits == '-' then
      add(q, 'unlimited', name)
    elseif changed[name] then
      local whos = read_whos(before[at])
      for letter in pairs(changed[name]) do whos[letter] = who end
      add(q, 'limited', name, a.limits .. spell_whos(Limits.parts_of(a.limits, q.now), whos))
    end
    Turns.schedule(q, a)
    released = released + max(0, min(a.behind, Limits.allowance(a, q.now)))
  end
  Turns.begin_effects(q)
  Rules.set_epoch(q.keys[META], following)
  send(q, 'unlimited', 'HDEL', 19)
  send(q, 'limited', 'HSET', 19)
  Notifications.notify_readers(q, released)
  Settle.close_change(q, said)
end

-- Notes that this of a shard key changes in this call.
local function note_changed(changed, name, letter)
  changed[name] = changed[name] or {}
  changed[name][letter] = true
end

-- "-" is what the queue says, "" leaves a limit as it is, a cap "=gold" is the plan gold; for a pause "+ms" is from
-- now, "0" none. Limits that are given end after `lasts`.
local function changed_limits(q, a, cap, rate, burst, pause, lasts)
  local parts = Limits.parts_of(a.limits, q.now)
  if cap ~= '' then parts[1] = cap == '-' and '' or cap end
  if rate ~= '' then parts[2] = rate == '-' and '' or rate end
  if burst ~= '' then parts[3] = burst == '-' and '' or burst end
  if cap .. rate .. burst ~= '' then
    Limits.put_end(parts, false, parts[1] .. parts[2] .. parts[3] ~= '' and lasts or '', q.now)
  end
  if pause == '0' then
    parts[4], parts[5] = '0', '0'
  elseif pause ~= '' then
    local till = byte(pause) == 43 and q.now + pause or pause + 0 -- 43 is '+'
    parts[4], parts[5] = spell(till), spell(max(0, till - q.now))
  end
  return parts
end

-- Spells for the journal what limits of its own a shard key has now: a plan, or what is not as the queue says.
local function values_of_limits(parts)
  local values = {}
  local plan = match(parts[1], '^=(.*)$')
  for at, name in ipairs{plan and 'plan' or 'max_in_flight', 'rate', 'burst'} do
    local value = at == 1 and plan or parts[at]
    if value ~= '' then values[#values + 1], values[#values + 2] = name, value end
  end
  return Journal.spell_values(values)
end

-- Spells for the journal how long a pause lasts, or would have lasted that ends; '' where it has no end, or none is.
local function values_of_pause(till, now)
  if not till or till >= FAR or till <= now then return '' end
  return Journal.spell_values{'seconds', format('%.3f', (till - now) / 1000)}
end

-- Notes what was changed of a shard key. Its pause was to end at `paused_till` before, 0 if it was not paused.
local function note_limited(q, name, pause, parts, paused_till)
  if not q.events then return end
  local till = parts[pause == '' and 7 or 4] + 0
  local kind = pause == '' and 'i' or pause == '0' and 'f' or 'h'
  local values = kind == 'i' and values_of_limits(parts) or values_of_pause(kind == 'f' and paused_till or till, q.now)
  Journal.note_event(q, kind, '', name, 0, till > 0 and till < FAR and till or nil, values)
end

-- Returns what the accounts say of these names that are listed: for each the parts that are in force, nil if none are.
-- (The list is not at hand where time ends something, and does not know whether the clock was set back.)
local function parts_in_force(meta, names, now)
  local fields = {}
  for at, name in ipairs(names) do fields[at] = 't:' .. name end
  if #fields == 0 then return fields end
  local found = {}
  for at, account in ipairs(call('HMGET', meta, unpack(fields))) do -- at most 5,000: a page
    local parts = Limits.parts_of(Limits.limits_in(account), now)
    if Limits.text_of(parts) ~= '-' then found[names[at]] = parts end
  end
  return found
end

-- Forgets some of the limits that are over, more than this call adds.
local function forget_ended(q, key, number)
  local some = call('HRANDFIELD', key, 2 * number + 8)
  local parts = parts_in_force(q.keys[META], some, q.now)
  for _, name in ipairs(some) do
    if name ~= '' and not parts[name] then add(q, 'unlimited', name) end
  end
end

-- Returns a page of the list of limits: the cursor to continue from, names, the list's text of each, and the parts that
-- are in force of those that have any. The page is of the names alone that are given.
local function read_page(meta, key, cursor, count, now, given)
  local names, texts = {}, {}
  if given and #given > 0 then
    local found = call('HMGET', key, unpack(given)) -- at most 50: the names
    for at, name in ipairs(given) do
      if found[at] and not texts[name] then names[#names + 1], texts[name] = name, found[at] end
    end
    return '0', names, texts, parts_in_force(meta, names, now)
  end
  local page = call('HSCAN', key, cursor, 'COUNT', count)
  for at = 1, #page[2], 2 do
    names[#names + 1] = page[2][at]
    texts[page[2][at]] = page[2][at + 1]
  end
  return page[1], names, texts, parts_in_force(meta, names, now)
end

-- @verb limit | allow-oom: give shard keys (or parents) limits of their own. Messages within the new limits may be
-- delivered at once. The epoch moves only so that a late copy of this call changes nothing.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] limits: limits and weights of shard keys that have any
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[4] lasts: the limits that are given, but pauses, end after this many ms, '' for never
-- ARGV[5..] changes: shard key, cap, rate, burst, paused until (ms; '+ms' from now), ...; '' leaves a limit as it is,
--           '-' is what the queue says, a cap '=gold' is the plan gold. Of a shard key that comes twice the last counts
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'PLAIN' where no message counts
--        | 'CHILD' where the queue has parents, and a key is a child | {'NOPLAN', name} if there is no such plan
function verbs.limit(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18, 'limits')
  Arguments.check(ARGV, {'epoch', 'following', 'who', 'ms_or_none'},
    {'key', 'own_cap', 'own_rate', 'own_limit', 'own_pause'}, 250)
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = Settle.open_change(KEYS, 18)
  if q.rules.window == 0 then return 'PLAIN' end
  local names, changed = {}, {}
  for at = 5, #ARGV, 5 do
    local lifts = ARGV[at + 1] == '-' and ARGV[at + 2] == '-' and ARGV[at + 3] == '-' or ARGV[at + 4] == '0'
    -- A limit may be taken back from a key that has become a child since: `parents` was switched on later.
    if not lifts and Rules.owner_of(q.rules, ARGV[at]) ~= ARGV[at] then return 'CHILD' end
    local plan = match(ARGV[at + 1], '^=(.*)$')
    if plan and not q.rules.plans[plan] then return {'NOPLAN', plan} end
    names[#names + 1] = ARGV[at]
  end
  forget_ended(q, KEYS[19], #names)
  Accounts.load_accounts(q, names)
  for at = 5, #ARGV, 5 do
    local a, pause = q.accounts[ARGV[at]], ARGV[at + 4]
    local paused_till = q.events and Limits.parts_of(a.limits, q.now)[4] + 0
    local parts = changed_limits(q, a, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], pause, ARGV[4])
    change_limits(q, a, parts)
    if ARGV[at + 1] .. ARGV[at + 2] .. ARGV[at + 3] ~= '' then note_changed(changed, a.name, 'l') end
    if pause ~= '' then note_changed(changed, a.name, 'p') end
    note_limited(q, a.name, pause, parts, paused_till)
  end
  close_limits(q, KEYS[19], ARGV[3], ARGV[2], changed)
  return 'OK'
end

-- @verb weigh | allow-oom: give shard keys another weight. The epoch moves only so that a late copy of this call
-- changes nothing.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] limits: limits and weights of shard keys that have any
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[4] lasts: the weights end after this many ms, '' for never
-- ARGV[5..] changes: shard key, weight, ...; 1 is every shard key's and kept of none
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.weigh(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18, 'limits')
  Arguments.check(ARGV, {'epoch', 'following', 'who', 'ms_or_none'}, {'key', 'weight'}, 1000)
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = Settle.open_change(KEYS, 18)
  local names, changed = {}, {}
  for at = 5, #ARGV, 2 do names[#names + 1] = ARGV[at] end
  forget_ended(q, KEYS[19], #names)
  Accounts.load_accounts(q, names)
  for at = 5, #ARGV, 2 do
    local a, weight = q.accounts[ARGV[at]], ARGV[at + 1]
    local parts = Limits.parts_of(a.limits, q.now)
    parts[6] = weight
    Limits.put_end(parts, true, weight ~= '1' and ARGV[4] or '', q.now)
    change_limits(q, a, parts)
    note_changed(changed, a.name, 'w')
    if Rules.owner_of(q.rules, a.name) ~= a.name then Children.end_weight(q, a) end
    local till = parts[9] + 0
    local values = q.events and Journal.spell_values{'weight', weight}
    Journal.note_event(q, 'j', '', a.name, 0, till > 0 and till or nil, values)
  end
  close_limits(q, KEYS[19], ARGV[3], ARGV[2], changed)
  return 'OK'
end

-- @verb limits | no-writes: a page of the shard keys that have limits or weights of their own or are paused, and
-- whether the whole queue is paused.
-- KEYS[1] meta: until when the queue is paused
-- KEYS[2] limits: limits and weights of shard keys that have any
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many
-- ARGV[3..] names: shard keys, at most 50, to tell of these alone; none: of all
-- Reply: {now} when there is no such queue | {now, the time in ms until which the queue is paused or '', who paused it:
--        "since\31by\31note" or '', cursor to continue from ('0' at the end), {shard key, "cap rate burst until weight
--        limits_until weight_until", and who gave what, a line each: "p", "l" or "w", and as above, ...}}
function verbs.limits(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'limits'})
  Arguments.check(ARGV, {'cursor', 'count'}, {'key'}, 50)
  local now = read_time()
  local epoch, odd, paused_by = unpack(call('HMGET', KEYS[1], 'epoch', 'odd', 'paused_by')) -- at most 3: the fields
  if not epoch then return {now} end
  local given = {unpack(ARGV, 3)} -- at most 50: the names
  local cursor, names, texts, in_force = read_page(KEYS[1], KEYS[2], ARGV[1], ARGV[2], now, given)
  local rows = {}
  for _, name in ipairs(names) do
    local parts = name ~= '' and in_force[name]
    if parts then
      local spelled = concat({Limits.spell_own(parts), parts[6], parts[7], parts[9]}, ' ')
      rows[#rows + 1], rows[#rows + 2] = name, spelled .. spell_whos(parts, read_whos(texts[name]))
    end
  end
  local till = Limits.end_of_pause(State.read_odd(odd), now)
  return {now, till or '', till and paused_by or '', cursor, rows}
end

-- @verb weights | no-writes: a page of the weights of shard keys.
-- KEYS[1] meta: what is in force
-- KEYS[2] limits: limits and weights of shard keys that have any
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many
-- Reply: {cursor to continue from, '0' at the end; "weight:length:key" of each, joined}
function verbs.weights(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'limits'})
  Arguments.check(ARGV, {'cursor', 'count'})
  local cursor, names, _, in_force = read_page(KEYS[1], KEYS[2], ARGV[1], ARGV[2], read_time())
  local told = {}
  for _, name in ipairs(names) do
    local weight = name ~= '' and in_force[name] and in_force[name][6] or '1'
    if weight ~= '1' then told[#told + 1] = weight .. ':' .. #name .. ':' .. name end
  end
  return {cursor, concat(told)}
end

-- @verb pause | allow-oom: let reads pass over the whole queue until a time, or end that. The epoch moves only so that
-- a late copy of this call changes nothing.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] journal: what happened
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] until: the server's time in ms, '+ms' from now, '0' = end the pause
-- ARGV[4] readers: the number of them to wake when the pause ends, or is to end by itself
-- ARGV[5] who: the caller, and who asked for it (`Journal.who_of`)
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.pause(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'notifications', 'journal'})
  Arguments.check(ARGV, {'epoch', 'following', 'pause', 'few', 'who'})
  local meta, till = KEYS[1], ARGV[3]
  local answer = Queue.check_epoch(meta, ARGV[1], ARGV[2])
  if answer then return answer end
  local now = read_time()
  local text, line, odd = unpack(call('HMGET', meta, 'rules', 'line', 'odd')) -- at most 3: the fields
  local waiting = State.read_line(line)[6]
  till = byte(till) == 43 and now + till or till + 0 -- 43 is '+'
  Rules.set_epoch(meta, ARGV[2])
  State.set_odd(meta, 'paused', till > now and spell(till) .. ',' .. spell(till - now) or '')
  -- (After a pause that ends by itself this stays, and is not shown any more.)
  call('HSET', meta, 'paused_by', till > now and spell_who(now, ARGV[5]) or '')
  -- Also where a pause only begins: readers that are blocked have to learn when it ends.
  if till < FAR and waiting > now then
    for _ = 1, ARGV[4] do Notifications.wake_reader(KEYS[2], '') end
  end
  local values = values_of_pause(till == 0 and Limits.end_of_pause(State.read_odd(odd), now) or till, now)
  local keys = {[META] = meta, [JOURNAL] = KEYS[3]}
  local due = till > 0 and till < FAR and till or nil
  Journal.tell(keys, Rules.rules_of(text), now, ARGV[5], till == 0 and 'f' or 'h', values, due)
  return 'OK'
end

-- Returns how often a message that is in flight was delivered, as its lease says; 0 if that is not found.
local function deliveries_of(q, found)
  if found.state ~= 'in_flight' then return 0 end
  local token = Places.find_lease(q, found.place, found.id)
  local _, _, attempt = Leases.read_token(token or '')
  local _, _, attributes = Messages.head_of_body(found.body)
  return (attempt or 0) + Messages.deliveries_before(attributes)
end

-- Finds a message for a verb that changes it. If its lease is over, the work of the next read is done first.
local function find_now(q, full_id, origin, id, key)
  local found = Places.find(q, full_id, origin, id, key)
  local token = found and found.token
  if not found then
    -- Cancelled in flight: only its lease is left.
    token = Ended.token_of(q, match(origin, '^%d+$') or 'd', id) or Ended.token_of(q, 'd', id)
  end
  if not token then return found end
  return Leases.take_back(q, token) and Places.find(q, full_id, origin, id, key) or nil
end

-- Removes a message that waits, or marks one that is in flight. Returns what became of it.
function Operate.cancel_message(q, full_id, origin, id, key)
  local found = find_now(q, full_id, origin, id, key)
  if not found then
    -- It may have been cancelled before: then its body is gone, and the mark is left until its lease ends.
    local first = match(origin, '^%d+$') or 'd'
    return Places.cancelled_at(q, id, {first, 'd'}) and 'in flight' or 'unknown'
  end
  if found.state == 'dead' then return 'dead' end
  local place = found.place
  local in_flight = found.state == 'in_flight'
  if in_flight then
    -- Another cancel finds the mark, and counts nothing again.
    if call('SADD', q.keys[CANCELLED], place .. ':' .. found.id) == 0 then return 'in flight' end
    q.cancels = q.cancels + 1
  else
    Places.take_out(q, found)
  end
  -- At once, also for a message in flight: its writer may cancel it in order to write it again.
  Unique.release_key(q, found.body, found.id)
  -- The body of one in flight says whose it is, until its delivery ends. A stream may not be declared then.
  if not in_flight or place ~= 'd' then
    add(q, 'without_error', found.id)
    Messages.drop_body(q, place, found.id)
  end
  State.count_up(q, 'cancelled', 1)
  Journal.note_event(q, in_flight and 'k' or 'c', full_id, found.key, q.events and deliveries_of(q, found) or 0)
  q.ended = q.ended or {}
  q.ended[#q.ended + 1] = full_id
  return in_flight and 'in flight' or 'removed'
end

-- @verb cancel | allow-oom: remove a waiting or delayed message wherever it is; mark one that is in flight.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: the stream that the id names, if it names one
-- ARGV[1] message_id: as write returned it
-- ARGV[2] origin: the last part of the id, 'o' without the shard key
-- ARGV[3] id: the rest of it
-- ARGV[4] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[5] key: the shard key in the id, '' if it has none
-- ARGV[6] number: of this call (`read_number`): it is done once, however often it is tried
-- Reply: {'OK', 'removed' | 'in flight' | 'dead' | 'unknown'} | {'STALE'} | {'FULL', 'max_producers'}
function verbs.cancel(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'message_id', 'origin', 'id', 'who', 'key_or_none', 'call_number'})
  local producer, number, keep = Producers.read_number(ARGV[6])
  local q = Settle.open_change(KEYS, 18, producer or '')
  if not q then return {'OK', 'unknown'} end
  Types.look_at_all(q)
  local answer = producer and Producers.check_call(q, number, keep, q.values[State.COMMON + 1])
  if answer then return answer end
  local was = Operate.cancel_message(q, ARGV[1], ARGV[2], ARGV[3], ARGV[5])
  Producers.end_call(q, producer, was)
  Settle.close_change(q, ARGV[4])
  return {'OK', was}
end

-- Moves a message that waits to another time, or to another shard key.
local function move_message(q, found, key, due, id, flags)
  local attempts = found.at and found.at.attempts or 0
  flags = found.at and found.at.flags or flags
  Places.take_out(q, found)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
  if due and due > q.now then
    Due.put_off(q, a, key, due, 'd', id, attempts .. flags)
  else
    Waiting.give_back(q, a, key, 'd', id, attempts .. flags)
    Notifications.notify_reader(q)
  end
end

-- Returns where a message with a unique key waits, nil if it does not: the text of its key says its state, so no index
-- must be searched for one that is worked on.
local function find_waiting(q, full_id, id, state)
  if state ~= 'w' and not (state == 'f' and Ended.token_of(q, 'd', id)) then return nil end
  local found = find_now(q, full_id, 'd', id, '')
  if not found or found.state == 'in_flight' then return nil end
  -- After its last delivery it goes to the dead letters, and nobody sees its payload any more.
  if found.at and Ended.is_last(q, found.at.attempts) then return nil end
  return found
end

-- Returns where the message is that has a unique key, and waits; its body, and what is known of the key. If it does
-- not, nil and what to answer.
local function find_holder(q, key, full_id)
  local text = call('HGET', q.keys[DEDUP], 'u:' .. key)
  local id, state, known = match(text or '', '^(%S+) (%a) ([^|]*)')
  local body = id and known == full_id and call('HGET', q.keys[BODIES], id)
  if not body then return nil, 'GONE' end
  local found = find_waiting(q, full_id, id, state)
  if not found then return nil, 'FLIGHT' end
  return found, body, text
end

-- Returns the attributes of a message that was replaced: its deadline, the time by which it lies, its deliveries.
-- Unless it moves that time stays as it is, also when it is over: the message is found by it (`Places.find`).
local function replaced_attributes(q, old, lasts, moves, due)
  local ends = lasts ~= '' and ' x' .. spell(q.now + lasts) or ''
  local lies_by = match(old, ' t%d+') or ''
  if moves then lies_by = due and due > q.now and ' t' .. spell(due) or '' end
  return ends .. lies_by .. (match(old, ' c%d+') or '')
end

local function replace_body(q, id, old, body, payload)
  Messages.write_body(q, id, body, payload)
  if not payload and Messages.is_apart(old) then call('HDEL', q.keys[BODIES], Messages.field_of_payload(id)) end
end

-- @verb replace: give a message with a unique key, which waits, another payload. It keeps its id, and its place unless
-- its time or its shard key changes.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] epoch: the caller's idea of it
-- ARGV[2] number: of this call (`read_number`): it is done once, however often it is tried
-- ARGV[3] message_id: of the message that has the key
-- ARGV[4] unique_key: that key
-- ARGV[5] shard_key: whose it is now
-- ARGV[6] tag: of the codec
-- ARGV[7] payload: as it is stored
-- ARGV[8] headers: '' for none
-- ARGV[9] delay: ms from now on, '' = it comes due when it would have
-- ARGV[10] lasts: ms to its deadline, '' for none
-- ARGV[11] client: what the journal calls the caller
-- Reply: {'OK', ...} | {'GONE'}: the key is free | {'FLIGHT'}: it is being worked on, or on its way to the dead letters
-- | {'EPOCH'} | {'STALE'} | {'FULL', 'max_producers'}
function verbs.replace(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {
    'epoch', 'call_number', 'message_id', 'unique_key', 'key', 'tag', 'any', 'any', 'ms_or_none', 'ms_or_none',
    'client',
  })
  local full_id, shard_key, delay, lasts = ARGV[3], ARGV[5], ARGV[9], ARGV[10]
  local producer, number, keep = Producers.read_number(ARGV[2])
  local q = Settle.open_change(KEYS, 18, 'last', producer or '')
  -- Also to a repetition: the caller makes the call again with the same number.
  if not q or q.rules.epoch ~= ARGV[1] then return {'EPOCH'} end
  local key = Producers.scope_key(q, shard_key, ARGV[4])
  -- Redis knows rights by command and key, not by verb, and roles that write and settle have all others: this one only
  -- who may replace has (protocol/roles.py).
  call('HEXISTS', KEYS[DEDUP], 'u:' .. key)
  Types.look_at_all(q)
  local answer = producer and Producers.check_call(q, number, keep, q.values[State.COMMON + 2])
  if answer and answer[1] == 'OK' then Producers.touch(q, q.values[State.COMMON + 1]) end
  if answer then return answer end
  local found, body, text = find_holder(q, key, full_id)
  if not found then
    Settle.close_change(q, ARGV[11])
    return {body}
  end
  local old = Messages.parse_body(body)
  local due = found.state == 'delayed' and found.at.due or nil
  if delay ~= '' then due = q.now + delay end
  local moves = delay ~= '' or shard_key ~= old.key
  local attributes = replaced_attributes(q, old.attributes, lasts, moves, due)
  local tail = Messages.spell_tail(attributes, key, ARGV[6], ARGV[8])
  replace_body(q, found.id, body, Messages.spell_body(old.origin, shard_key, tail, ARGV[7]))
  if moves then move_message(q, found, shard_key, due, found.id, 'u') end
  Unique.save_unique(q, key, found.id, 'w', full_id, Rules.owner_of(q.rules, shard_key), text)
  Producers.end_call(q, producer, '')
  local attempts = found.at and found.at.attempts or 0
  Journal.note_event(q, 'y', full_id, shard_key, attempts, due and due > q.now and due or nil)
  Settle.close_change(q, ARGV[11])
  return {'OK'}
end
