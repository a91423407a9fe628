-- Verbs of operators and of single messages: limit, weigh, limits, weights, pause, cancel, replace, purge.

-- Gives an account other limits of its own, and puts it where it belongs now.
local function change_limits(q, a, parts)
  local text = concat(parts, ',')
  local before = Limits.plan_of(Limits.parts_of(a))
  local after = Limits.plan_of(parts)
  if before ~= after then
    if before then State.count_up(q, 'G:' .. before, -1) end
    if after then State.count_up(q, 'G:' .. after, 1) end
  end
  a.limits = text == Limits.NO_LIMITS and '-' or text
  a.look_at = 0
  Limits.heed_limits(a, q.rules, q.now)
  -- Its moment in `due` is noted anew: that of a delayed message, too, which the next read finds.
  if a.delayed > 0 then a.next_at = q.now end
end

local function close_limits(q, key, client, following)
  local released = 1
  for _, name in ipairs(q.names) do
    local a = q.accounts[name]
    -- Those who list limits find them here, as they are after the last change of an account that comes twice.
    if a.limits == '-' then add(q, 'unlimited', name) else add(q, 'limited', name, a.limits) end
    Turns.schedule(q, a)
    released = released + max(0, min(a.behind, Limits.allowance(a, q.now)))
  end
  call('HLEN', key)
  Turns.begin_effects(q)
  Rules.set_epoch(q.keys[META], following)
  send(q, 'unlimited', 'HDEL', 19)
  send(q, 'limited', 'HSET', 19)
  Notifications.notify_readers(q, released)
  Settle.close_change(q, client)
end

-- "-" is what the queue says, "" leaves a limit as it is, a cap "=gold" is the plan gold; of a pause "+ms" is from now,
-- "0" none.
local function changed_limits(q, a, cap, rate, burst, pause)
  local parts = Limits.parts_of(a)
  if cap ~= '' then parts[1] = cap == '-' and '' or cap end
  if rate ~= '' then parts[2] = rate == '-' and '' or rate end
  if burst ~= '' then parts[3] = burst == '-' and '' or burst end
  if pause == '0' then
    parts[4], parts[5] = '0', '0'
  elseif pause ~= '' then
    local till = byte(pause) == 43 and q.now + pause or pause + 0 -- 43 is '+'
    parts[4], parts[5] = spell(till), spell(max(0, till - q.now))
  elseif parts[4] + 0 <= q.now then
    parts[4], parts[5] = '0', '0'
  end
  return parts
end

local function note_limited(q, name, pause, parts)
  if not q.events then return end
  local till = parts[4] + 0
  local kind = pause == '' and 'i' or pause == '0' and 'f' or 'h'
  Journal.note_event(q, kind, '', name, 0, till > 0 and till < FAR and till or nil)
end

-- Forgets some of the pauses that are over, more than this call adds: where a pause ends, this list is not at hand.
local function forget_pauses(q, key, number)
  local some = call('HRANDFIELD', key, 2 * number + 8, 'WITHVALUES')
  for at = 1, #some, 2 do
    local till = match(some[at + 1], '^,,,(%d+),%d+,1$')
    if till and till + 0 <= q.now then add(q, 'unlimited', some[at]) end
  end
end

-- @verb limit | allow-oom: give shard keys (or parents) limits of their own. Messages within the new limits may be
-- delivered at once. The epoch moves only so that a late copy of this call changes nothing.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] limits: limits and weights of shard keys that have any
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] client: what the journal calls the caller
-- ARGV[4..] changes: shard key, cap, rate, burst, paused until (ms; '+ms' from now), ...; '' leaves a limit as it is,
--           '-' is what the queue says, a cap '=gold' is the plan gold. Of a shard key that comes twice the last counts
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'PLAIN' where no message counts
--        | 'CHILD' where the queue has parents, and a key is a child | {'NOPLAN', name} if there is no such plan
function verbs.limit(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18, 'limits')
  Arguments.check(ARGV, {'epoch', 'following', 'client'}, {'key', 'own_cap', 'own_rate', 'own_limit', 'own_pause'}, 250)
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = Settle.open_change(KEYS)
  if q.rules.window == 0 then return 'PLAIN' end
  local names = {}
  for at = 4, #ARGV, 5 do
    local lifts = ARGV[at + 1] == '-' and ARGV[at + 2] == '-' and ARGV[at + 3] == '-' or ARGV[at + 4] == '0'
    -- A limit may be taken back from a key that has become a child since: `parents` was switched on later.
    if not lifts and Rules.owner_of(q.rules, ARGV[at]) ~= ARGV[at] then return 'CHILD' end
    local plan = match(ARGV[at + 1], '^=(.*)$')
    if plan and not q.rules.plans[plan] then return {'NOPLAN', plan} end
    names[#names + 1] = ARGV[at]
  end
  forget_pauses(q, KEYS[19], #names)
  Accounts.load_accounts(q, names)
  for at = 4, #ARGV, 5 do
    local a = q.accounts[ARGV[at]]
    local parts = changed_limits(q, a, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    change_limits(q, a, parts)
    note_limited(q, a.name, ARGV[at + 4], parts)
  end
  close_limits(q, KEYS[19], ARGV[3], ARGV[2])
  return 'OK'
end

-- @verb weigh | allow-oom: give shard keys another weight. The epoch moves only so that a late copy of this call
-- changes nothing.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] limits: limits and weights of shard keys that have any
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] client: what the journal calls the caller
-- ARGV[4..] changes: shard key, weight, ...; 1 is every shard key's and kept of none
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.weigh(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18, 'limits')
  Arguments.check(ARGV, {'epoch', 'following', 'client'}, {'key', 'weight'}, 1000)
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = Settle.open_change(KEYS)
  local names = {}
  for at = 4, #ARGV, 2 do names[#names + 1] = ARGV[at] end
  Accounts.load_accounts(q, names)
  for at = 4, #ARGV, 2 do
    local a = q.accounts[ARGV[at]]
    local parts = Limits.parts_of(a)
    parts[6] = ARGV[at + 1]
    change_limits(q, a, parts)
    if Rules.owner_of(q.rules, a.name) ~= a.name then
      local child = Children.child_of(q, a.name)
      child.weight = ARGV[at + 1] + 0
    end
    Journal.note_event(q, 'j', '', a.name, 0)
  end
  close_limits(q, KEYS[19], ARGV[3], ARGV[2])
  return 'OK'
end

-- @verb limits | no-writes: a page of the shard keys that have limits or weights of their own, and whether the whole
-- queue is paused.
-- KEYS[1] meta: until when the queue is paused
-- KEYS[2] limits: limits and weights of shard keys that have any
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many
-- Reply: {now} when there is no such queue | {now, the time in ms until which the queue is paused or '', cursor to go
-- on from ('0' at
--         the end), {shard key, "cap rate burst until", ...}}
function verbs.limits(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'limits'})
  Arguments.check(ARGV, {'cursor', 'count'})
  local now = read_time()
  local epoch, odd = unpack(call('HMGET', KEYS[1], 'epoch', 'odd')) -- at most 2: the fields
  if not epoch then return {now} end
  local page = call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
  local rows = {}
  for at = 1, #page[2], 2 do
    local cap, rate, burst, till = match(page[2][at + 1], '^([^,]*),([^,]*),([^,]*),(%d+),')
    if cap and (cap ~= '' or rate ~= '' or burst ~= '' or till + 0 > now) then
      rows[#rows + 1], rows[#rows + 2] = page[2][at], Limits.spell_own({cap, rate, burst, till})
    end
  end
  local till = match(State.read_odd(odd).paused or '', '^%d+')
  return {now, till and till + 0 > now and till or '', page[1], rows}
end

-- @verb weights | no-writes: a page of the weights of shard keys.
-- KEYS[1] limits: limits and weights of shard keys that have any
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many
-- Reply: {cursor to go on from, '0' at the end; "weight:length:key" of each, joined}
function verbs.weights(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'limits'})
  Arguments.check(ARGV, {'cursor', 'count'})
  local page = call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
  local all, parts = page[2], {}
  for at = 1, #all, 2 do
    local weight = match(all[at + 1], ',(%d+)$')
    if weight and weight ~= '1' then parts[#parts + 1] = weight .. ':' .. #all[at] .. ':' .. all[at] end
  end
  return {page[1], concat(parts)}
end

-- @verb pause | allow-oom: let reads pass over the whole queue until a time, or end that. The epoch moves only so that
-- a late copy of this call changes nothing.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] journal: what happened
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] until: the server's time in ms, '+ms' from now, '0' = end the pause
-- ARGV[4] readers: wake so many of them when the pause ends, or is to end by itself
-- ARGV[5] client: what the journal calls the caller
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.pause(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'notifications', 'journal'})
  Arguments.check(ARGV, {'epoch', 'following', 'pause', 'few', 'client'})
  local meta, till = KEYS[1], ARGV[3]
  local answer = Queue.check_epoch(meta, ARGV[1], ARGV[2])
  if answer then return answer end
  local now = read_time()
  local text, line = unpack(call('HMGET', meta, 'rules', 'line')) -- at most 2: the fields
  local waiting = State.read_line(line)[6]
  till = byte(till) == 43 and now + till or till + 0 -- 43 is '+'
  Rules.set_epoch(meta, ARGV[2])
  State.set_odd(meta, 'paused', till > now and spell(till) .. ',' .. spell(till - now) or '')
  -- Also where a pause only begins: readers that are blocked have to learn when it ends.
  if till < FAR and waiting > now then
    for _ = 1, ARGV[4] do Notifications.wake_reader(KEYS[2], '') end
  end
  local q = new_q{keys = {[META] = meta, [JOURNAL] = KEYS[3]}, rules = Rules.rules_of(text), now = now}
  if q.rules.journal > 0 then
    Journal.begin_events(q)
    Journal.note_event(q, till == 0 and 'f' or 'h', '', '', 0, till > 0 and till < FAR and till or nil)
    Journal.save_events(q, ARGV[5])
  end
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

-- Finds a message for a verb that changes it. If its lease is over, what the next read would do is done first.
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
local function cancel_message(q, full_id, origin, id, key)
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
  -- At once, also of a message in flight: its writer may cancel it in order to write it anew.
  Unique.release_key(q, found.body, found.id)
  -- The body of one in flight says whose it is, until its delivery ends. A stream may not be declared then.
  if not in_flight or place ~= 'd' then
    add(q, 'without_error', found.id)
    Messages.drop_body(q, place, found.id)
  end
  State.count_up(q, 'cancelled', 1)
  Journal.note_event(q, in_flight and 'k' or 'c', full_id, found.key, q.events and deliveries_of(q, found) or 0)
  q.ended = {full_id}
  return in_flight and 'in flight' or 'removed'
end

-- @verb cancel | allow-oom: remove a waiting or delayed message wherever it is; mark one that is in flight.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: the stream that the id names, if it names one
-- ARGV[1] message_id: as write returned it
-- ARGV[2] origin: the last part of the id, 'o' without the shard key
-- ARGV[3] id: the rest of it
-- ARGV[4] client: what the journal calls the caller
-- ARGV[5] key: the shard key in the id, '' if it has none
-- ARGV[6] number: of this call (`read_number`): it is done once, however often it is tried
-- Reply: {'OK', 'removed' | 'in flight' | 'dead' | 'unknown'} | {'STALE'} | {'FULL', 'max_producers'}
function verbs.cancel(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'message_id', 'origin', 'id', 'client', 'key_or_none', 'call_number'})
  local producer, number, keep = Producers.read_number(ARGV[6])
  local q = Settle.open_change(KEYS, producer or '')
  if not q then return {'OK', 'unknown'} end
  Types.look_at_all(q)
  local answer = producer and Producers.check_call(q, number, keep, q.values[State.COMMON + 1])
  if answer then return answer end
  local was = cancel_message(q, ARGV[1], ARGV[2], ARGV[3], ARGV[5])
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
  local q = Settle.open_change(KEYS, 'last', producer or '')
  -- Also to a repetition: the caller makes the call anew with the same number.
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

local function purge_body(q, place, id, key)
  Leases.note_end(q, 'g', place, id, key, 0)
  Messages.drop_body(q, place, id)
  add(q, 'without_error', id)
  q.purged = q.purged + 1
end

-- Takes away what is told of a stream: `left` are not over.
local function note_purged(q, number, key, left, rest, entries)
  local lost = left - rest - #entries
  q.shared = q.shared - (left - rest)
  if lost > 0 then
    State.count_up(q, 'vanished', lost)
    q.walk = Due.walk_for_vanished(q.walk or q.odd.walk or '')
    State.put_odd(q, 'walk', q.walk)
  end
  State.put(q, key, rest)
  if #entries > 0 then State.put(q, 'h' .. number, entries[#entries][1]) end
  if rest == 0 then Streams.mark(q, number, 48) end -- '0'
end

-- Removes the undelivered entries of one stream.
local function purge_stream(q, number)
  local key = Messages.stream_key(q, number)
  local left, cursor = unpack(call('HMGET', q.keys[META], key, 'h' .. number)) -- at most 2: the fields
  left = tonumber(left or 0)
  local asked = q.most - q.purged
  local entries = call('XRANGE', key, '(' .. (cursor or '0-0'), '+', 'COUNT', asked + 1)
  if #entries > left then
    Streams.count_foreign(q, #entries - left)
    left = #entries
  end
  local has_more = #entries > asked
  if has_more then entries[#entries] = nil end
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local is_ours = Messages.is_ours(fields)
    if is_ours and fields[1] == 'K' then
      local a = Accounts.find_account(q, Rules.owner_of(q.rules, fields[2]))
      a.taken = max(0, a.taken - 1)
    end
    purge_body(q, spell(number), entry[1], is_ours and fields[2] or '')
  end
  note_purged(q, number, key, left, has_more and left - #entries or 0, entries)
end

-- Removes a piece of an index whose members begin with "size:name:". `each` counts what goes.
local function purge_index(q, index, list, each)
  -- (The sentinel comes before the digits, the order of children behind them.)
  local members = call('ZRANGEBYLEX', index, '[0', '(:', 'LIMIT', 0, q.most - q.purged)
  for _, member in ipairs(members) do
    local size, from = match(member, '^(%d+):()')
    local name = sub(member, from, from + size - 1)
    if each(q, name, member, from + size + 1) then add(q, list, member) end
  end
end

local function purge_delayed(q, name, member, rest)
  local place, id, attempts = match(member, '^%d+:(%w+):([%d-]+):(%w+):', rest)
  if place ~= 'd' and not Messages.stream_key(q, place) then return false end
  local a = Accounts.find_account(q, name)
  a.delayed = a.delayed - 1
  Due.count_retrying(q, attempts, -1)
  purge_body(q, place, id, name)
  return true
end

local function purge_returned(q, key, member, rest)
  local place, id = match(member, '^%a%d+:(%w+):([%d-]+):', rest)
  if place ~= 'd' and not Messages.stream_key(q, place) then return false end
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
  local holder = q.rules.parents and Children.child_of(q, key) or a
  holder.returned, holder.behind, q.behind = holder.returned - 1, holder.behind - 1, q.behind - 1
  if holder ~= a then a.behind = a.behind - 1 end
  purge_body(q, place, id, key)
  return true
end

local function purge_record(q, holder, id, mark)
  if mark == Messages.REFERENCE then return purge_body(q, 'd', id, holder.name) end
  if mark == Messages.APART then Messages.drop_body(q, 'd', id) end
  Journal.note_event(q, 'g', Messages.message_id(id, 'o', holder.name), holder.name, 0)
  q.purged = q.purged + 1
end

-- Removes what waits in the overflow of one shard key.
local function purge_overflow_of(q, a, holder)
  local base = Waiting.overflow_base(holder.name)
  while q.purged < q.most and holder.behind > holder.returned do
    local got = Overflow.pop_records(q, holder, base, q.most - q.purged, purge_record)
    if got == 0 and holder.overflow.size > 0 then return end -- the next call goes on
    if got == 0 then
      got = holder.behind - holder.returned
      State.count_up(q, 'vanished', got)
    end
    holder.behind, q.behind = holder.behind - got, q.behind - got
    if holder ~= a then a.behind = a.behind - got end
  end
end

local SCANS = 4 -- of 100 fields each, in one call

-- Removes what waits in overflows, of a piece of the shard keys. Returns where the next call goes on, '0' at the end:
-- at the piece in which something may be left.
local function purge_overflows(q)
  local cursor = call('HGET', q.keys[META], 'purge') or '0'
  for _ = 1, SCANS do
    local piece = call('HSCAN', q.keys[META], cursor, 'COUNT', 100)
    for at = 1, #piece[2], 2 do
      local kind, name = match(piece[2][at], '^([tc]):(.*)$')
      if kind == 't' and not q.rules.parents and not tonumber(piece[2][at + 1]) then
        local a = Accounts.find_account(q, name)
        purge_overflow_of(q, a, a)
      elseif kind == 'c' and q.rules.parents then
        purge_overflow_of(q, Accounts.find_account(q, Rules.owner_of(q.rules, name)), Children.child_of(q, name))
      end
    end
    -- Not on from here: something of this piece may be left, so the next call looks at it again.
    if q.purged >= q.most then break end
    cursor = piece[1]
    if cursor == '0' then break end
  end
  if cursor ~= '0' then State.put(q, 'purge', cursor) else State.unset(q, 'purge') end
  return cursor
end

-- Looks at a piece of the accounts, where entries of theirs vanished and the streams are empty. Says whether there are
-- more.
local function walk_vanished(q)
  q.walk, q.piece = q.walk or q.odd.walk or '', PIECE
  if byte(q.walk) ~= 118 or not Due.is_walking(q) then return false end -- 118 is 'v'
  Due.walk_accounts(q)
  return q.walk ~= ''
end

-- Messages whose leases are over wait, too: a piece of them comes back first.
local function take_back_ended(q)
  if not Ended.may_be_some(q) then return end
  q.piece = PIECE
  Leases.take_ended(q, Ended.till(q))
  Leases.flush_taken(q)
  State.put(q, 'lease_at', spell(q.lease_at))
end

-- @verb purge | allow-oom: remove up to `most` undelivered and delayed messages; what is in flight stays. The call that
-- finds nothing left moves the epoch, so that no copy of a call that comes late removes what was written since.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: the declared ones
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: in this call
-- ARGV[4] client: what the journal calls the caller
-- ARGV[5] number: of this call (`read_number`): it is done once, however often it is tried
-- Reply: {'OK', "how many were removed|1 when there may be more"} | {'NOQUEUE' | 'EPOCH', '0|0'} | {'STALE'}
--        | {'FULL', 'max_producers'}
function verbs.purge(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'epoch', 'following', 'count', 'client', 'call_number'})
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer == 'NOQUEUE' then return {answer, '0|0'} end
  local producer, sequence, keep = Producers.read_number(ARGV[5])
  local q = Settle.open_change(KEYS, producer or '')
  Types.look_at_all(q)
  -- Whatever the epoch is by now: if it was done, it says so.
  local done = producer and Producers.check_call(q, sequence, keep, q.values[State.COMMON + 1])
  if done then return done end
  if answer then return {answer, '0|0'} end
  take_back_ended(q)
  q.most, q.purged = ARGV[3] + 0, 0
  local ready = call('HGET', KEYS[META], 'ready')
  q.ready = ready
  for number = 0, #ready - 1 do
    if byte(ready, number + 1) == 49 and q.purged < q.most and Messages.stream_key(q, number) then
      purge_stream(q, number)
    end
  end
  if q.marks then State.put(q, 'ready', Streams.ready(q)) end
  if q.purged < q.most then purge_index(q, KEYS[DELAYED], 'not_later', purge_delayed) end
  if q.purged < q.most then purge_index(q, KEYS[RETURNED], 'not_back', purge_returned) end
  local cursor = q.purged < q.most and q.behind > 0 and purge_overflows(q) or '0'
  -- Only a call that found nothing ends the purge: messages that came meanwhile may lie behind the look of another.
  local more = q.purged > 0 or cursor ~= '0' or q.is_catching_up or walk_vanished(q)
  if not more then Rules.set_epoch(KEYS[META], ARGV[2]) end
  State.count_up(q, 'purged', q.purged)
  local told = q.purged .. (more and '|1' or '|0')
  Producers.end_call(q, producer, told)
  Settle.close_change(q, ARGV[4])
  return {'OK', told}
end
