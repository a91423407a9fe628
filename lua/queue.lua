-- Verbs of a queue as a whole: open, configure, resize, shrink, stats, len, purge.

local function create_stream(key)
  if call('EXISTS', key) == 1 then return end
  call('XADD', key, '0-1', 's', '')
  call('XDEL', key, '0-1')
end

local OWN = 28 -- keys of a queue beside its streams

-- Every declared key exists at all times, since a missing key turns each call into TRYAGAIN while its slot moves. So
-- sorted sets, hashes and the set keep a sentinel, a member that no reader ever sees.
local function create_keys(KEYS, now)
  -- Keys are made one by one below: one of another type would leave half a queue.
  Types.look_at_fixed(KEYS)
  local hashes = {KEYS[FAILURES], KEYS[20], KEYS[21], KEYS[22], KEYS[24], KEYS[26], KEYS[27], KEYS[28]}
  check_types(hashes, {KEYS[PRODUCERS], KEYS[BULK_OFFSETS], KEYS[23], KEYS[25]}, {})
  for _, at in ipairs({TURNS, DUE, PRODUCERS, DEDUP_INDEX, BULK_OFFSETS, LEASES}) do
    call('ZADD', KEYS[at], 'NX', NEVER, '')
  end
  for _, at in ipairs({DELAYED, RETURNED}) do call('ZADD', KEYS[at], 'NX', 0, '') end
  for _, at in ipairs({ERRORS, MOVED}) do call('HSETNX', KEYS[at], '', '') end
  -- A value of more than 64 bytes makes it a table: in the packed form each of many fields is searched from the start.
  for _, at in ipairs({META, BODIES}) do call('HSETNX', KEYS[at], '', rep(' ', 65)) end
  call('HSETNX', KEYS[DEDUP], '', spell(now)) -- since when it remembers
  call('SADD', KEYS[CANCELLED], '')
  for _, at in ipairs({JOURNAL, DEAD, FINISHED}) do create_stream(KEYS[at]) end
  if call('EXISTS', KEYS[NOTIFICATIONS]) == 0 then
    call('XGROUP', 'CREATE', KEYS[NOTIFICATIONS], 'shardq', '$', 'MKSTREAM')
  end
  for _, key in ipairs(hashes) do call('HSETNX', key, '', '') end
  for _, key in ipairs({KEYS[23], KEYS[25]}) do call('ZADD', key, 'NX', NEVER, '') end
end

-- The fields of the state that replies about a queue have: its settings, whose names the library puts in (sources.py),
-- what it is, and what was counted.
local FACTS = {
  '@settings',
  'epoch', 'id', 'created', 'streams', 'wanted', 'assigned', 'reach', 'events', 'rules', 'accounts', 'adopted',
  'expired', 'cancelled', 'purged', 'dead_lettered', 'dead_dropped', 'dead_deleted', 'result_count', 'result_bytes',
  'results_refused', 'vanished', 'redriven', 'redelivered', 'retrying', 'failed', 'offset', 'generation',
}

local function facts_of(meta)
  local values = call('HMGET', meta, unpack(FACTS)) -- at most 100: the facts
  local facts = {}
  for at, name in ipairs(FACTS) do
    if values[at] then facts[#facts + 1], facts[#facts + 2] = name, values[at] end
  end
  local last = call('HGET', meta, 'last')
  if last then
    local at, n = match(last, '^(%d+)-(%d+)$')
    facts[#facts + 1], facts[#facts + 2], facts[#facts + 3], facts[#facts + 4] = 'n', n, 'last_at', at
  end
  return facts
end

-- Creates what is missing of a queue: some of its keys, or all of it.
local function create_queue(KEYS, ARGV, now, is_new)
  create_keys(KEYS, now)
  if not is_new then return end
  local wanted = ARGV[1] + 0
  local stamp = spell(now)
  -- The streams before the state: with an epoch in it the queue is there, and needs all of them.
  for at = OWN + 1, OWN + wanted do create_stream(KEYS[at]) end
  call('HSET', KEYS[META], 'epoch', ARGV[2], 'streams', wanted, 'wanted', wanted, 'offset', 0, 'last', stamp .. '-0',
    'line', State.NO_LINE, 'shared', 0, 'odd', '', 'adopted', 0, 'lease_at', FAR, 'ready', rep('0', wanted),
    'created', stamp, 'id', stamp .. '-' .. ARGV[2])
  for at = 3, #ARGV, 2 do call('HSET', KEYS[META], ARGV[at], ARGV[at + 1]) end
  Rules.compile_rules(KEYS[META])
  -- Events are numbered from the microsecond of the queue's creation: those of a next life are higher, whatever
  -- happened.
  call('HSET', KEYS[META], 'events', spell(now * 1000))
end

-- @verb open | allow-oom: create the queue if it is missing, create missing keys again, and say what the queue is. Also
-- on a full server: a reader that starts must be able to drain it.
-- KEYS[1..19]: the first 19 of a queue (base.lua)
-- KEYS[20] assigned: shards of named shard keys
-- KEYS[21] limits: limits and weights of shard keys that have any
-- KEYS[22] results: what is kept of messages
-- KEYS[23] result_ends: the same by end
-- KEYS[24] schedules: those that users stored
-- KEYS[25] schedule_due: all schedules by their next slots
-- KEYS[26] workers: the last report of its workers
-- KEYS[27] minutes: what it did and had in each of the last minutes
-- KEYS[28] actions: what operators have under way
-- KEYS[29..] streams: as many as the caller would create
-- ARGV[1] streams: how many to create if the queue is missing, 0 = do not create
-- ARGV[2] epoch: its first one, a nonce that begins with the format. It is part of the queue's id, too
-- ARGV[3..] settings: name, value, ... stored if the queue is created
-- Reply: {'CREATED' | 'OK' | 'NOQUEUE', now, {field, value, ...}} | {'FORMAT', now, {}} if the queue is of another
-- format
function verbs.open(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, OWN)
  Arguments.check(ARGV, {'streams', 'following'}, {'any', 'any'}, 100)
  Arguments.check_settings(ARGV, 3, false)
  Arguments.check_streams(KEYS, OWN + 1, 0, ARGV[1] + 0)
  local now = read_time()
  local wanted, epoch = ARGV[1] + 0, ARGV[2]
  local present = call('HGET', KEYS[META], 'epoch')
  if not present and wanted == 0 then return {'NOQUEUE', now, {}} end
  if present and match(present, '^%d+%.') ~= match(epoch, '^%d+%.') then return {'FORMAT', now, {}} end
  -- Mostly nothing is missing, and then who may create nothing may open the queue, too.
  if not present or call('EXISTS', unpack(KEYS, 1, OWN)) < OWN then -- at most 28: all but the streams
    create_queue(KEYS, ARGV, now, not present)
  end
  return {present and 'OK' or 'CREATED', now, facts_of(KEYS[META])}
end

-- @verb facts | no-writes: what the queue is, for those who may not change anything.
-- KEYS[1] meta: the state of the queue
-- Reply: {field, value, ...}
function verbs.facts(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  return facts_of(KEYS[META])
end

-- A call that changes a queue was made for one epoch and moves the queue on to `following`, which no other call does.
-- So a copy of it that comes late changes nothing. Returns nil if the call may continue, or what to answer instead:
-- 'OK' means that an earlier try did it (the epoch is then written once more, since WAIT waits for what its own
-- connection wrote last). These are calls of operators: they run a command that no other role may, since Redis knows of
-- rights to commands alone (docs/acls.md).
function Queue.check_epoch(meta, epoch, following)
  -- It tells nothing: it is the command that only operators may run.
  call('HSTRLEN', meta, 'epoch')
  local present = call('HGET', meta, 'epoch')
  if not present then return 'NOQUEUE' end
  -- Before it is compared with the caller's epoch: a repetition of the call that moved it finds its own.
  if present == following then
    call('HSET', meta, 'epoch', present)
    return 'OK'
  end
  return present ~= epoch and 'EPOCH' or nil
end

-- Says why settings cannot change now, nil if they can.
local function refused_change(q, changes)
  local meta = q.keys[META]
  local parents, scope = unpack(call('HMGET', meta, 'parents', 'key_scope')) -- at most 2: the fields
  if changes.parents and changes.parents ~= (parents or '0') then
    -- Messages delayed or in flight are counted, too, on accounts of the old names. (`leases` has a sentinel.)
    local others = State.count_delayed(q.keys, q.odd) + call('ZCARD', q.keys[LEASES]) - 1
    if q.behind + q.shared + others > 0 then return 'BUSY' end
  end
  if changes.key_scope and changes.key_scope ~= (scope or 'queue') then
    -- Those that have ended only lie there still, so they must not refuse the change.
    Unique.forget_keys(q, 1000)
    Shares.save(meta, q)
    if call('ZCARD', q.keys[DEDUP_INDEX]) > 1 then return 'KEYS' end -- the sentinel is one
  end
end

-- The events that the journal held end with it, and those until it is switched on again are missing: a number is left
-- out. None is missing from a queue that had no event and no message yet.
local function change_journal(q, changes)
  local meta = q.keys[META]
  local last, adopted, created, events, size = unpack( -- at most 5: the fields
    call('HMGET', meta, 'last', 'adopted', 'created', 'events', 'journal'))
  local is_new = match(last, '%d+$') + adopted == 0 and events == spell(created * 1000)
  if changes.journal and (size or '0') == '0' and not is_new then call('HINCRBY', meta, 'events', 1) end
  -- Trimmed and not deleted: a key that is missing makes calls wait while the slot moves.
  if changes.journal == '0' then call('XTRIM', q.keys[JOURNAL], 'MAXLEN', 0) end
end

local FIRST_WALK = 250 -- accounts, about, that are looked at when settings change

-- All accounts are looked at again: in most queues all now, in others a piece in each read.
function Queue.walk_for_rules(q)
  q.walk, q.piece = Due.walk_for_rules(q.odd.walk or ''), FIRST_WALK
  Due.walk_accounts(q)
end

-- Notes in the journal which settings were changed, as people gave them: where the head keeps its part of a bound, it
-- notes the `whole` queue's. To resize changes the number of partitions alone: the parts follow from that.
local function tell_changes(q, ARGV, changes)
  local told, whole = {}, {}
  for name, value in gmatch(changes.whole or '', '(%S+) (%S+)') do whole[name] = value end
  for at = 4, #ARGV, 2 do
    local name, value = ARGV[at], ARGV[at + 1]
    if name == 'partitions' then value = match(value, '^%d+') or '1' end
    local is_given = name ~= 'accounts' and name ~= 'whole' and (name == 'partitions' or not changes.partitions)
    if is_given then told[#told + 1], told[#told + 2] = name, whole[name] or value end
  end
  Journal.tell(q.keys, q.rules, q.now, ARGV[3], 'o', Journal.spell_values(told))
end

-- Counts the maps of the partitions that there were: see knows.lua.
local function count_maps(q, changes)
  local before, generation = unpack(call('HMGET', q.keys[META], 'partitions', 'generation')) -- at most 2: the fields
  if not changes.partitions or changes.partitions == (before or '') then return end
  State.put(q, 'generation', spell((tonumber(generation or 0) or 0) + 1))
end

-- @verb configure | allow-oom: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] epoch: for which the settings were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[4..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'BUSY' when `parents` changes while anything is accounted by the old rule
--        | 'KEYS' when `key_scope` changes while keys are remembered that were spelled by the old one
function verbs.configure(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'epoch', 'following', 'who'}, {'any', 'any'}, 100)
  Arguments.check_settings(ARGV, 4, true)
  local epoch, following, changes = ARGV[1], ARGV[2], {}
  for at = 4, #ARGV, 2 do changes[ARGV[at]] = ARGV[at + 1] end
  local answer = Queue.check_epoch(KEYS[META], epoch, following)
  if answer then return answer end
  local q = Settle.open_change(KEYS, 18)
  Types.look_at_all(q)
  check_types({}, {}, {KEYS[JOURNAL]})
  answer = refused_change(q, changes)
  if answer then return answer end
  if changes.parents and (changes.parents == '1') ~= q.rules.parents then Children.forget_all(q) end
  change_journal(q, changes)
  count_maps(q, changes)
  for name, value in pairs(changes) do
    if value == '' then call('HDEL', KEYS[META], name) else call('HSET', KEYS[META], name, value) end
  end
  call('HSET', KEYS[META], 'epoch', following)
  Rules.compile_rules(KEYS[META])
  -- The accounts below are judged by the new rules already.
  q.rules = Rules.rules_of(call('HGET', KEYS[META], 'rules'))
  Queue.walk_for_rules(q)
  local is_total = changes.total_in_flight or changes.total_rate or changes.total_burst
  -- Limits of the whole queue may have held back anything. Otherwise one reader is enough to go through the accounts.
  Notifications.notify_readers(q, is_total and q.shared + q.behind or min(q.behind, 1))
  Settle.close_change(q, ARGV[3])
  tell_changes(q, ARGV, changes)
  return 'OK'
end

-- @verb resize: set how many streams writes go to. More are read from at once; fewer only when the higher ones are
-- empty.
-- KEYS[1] meta: the state of the queue
-- KEYS[2..] streams: s0 up to the wanted number
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] wanted: number of streams
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'ASSIGNED' if shards would lose streams
function verbs.resize(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check(ARGV, {'epoch', 'following', 'some_streams'})
  Arguments.check_streams(KEYS, 2, 0, ARGV[3] + 0)
  local following, wanted = ARGV[2], ARGV[3] + 0
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], following)
  if answer then return answer end
  local streams, written_to, reach, ready = unpack( -- at most 4: the fields
    call('HMGET', KEYS[META], 'streams', 'wanted', 'reach', 'ready'))
  if wanted < tonumber(reach or 0) then return 'ASSIGNED' end
  if written_to + 0 == wanted then return 'OK' end
  for at = 2, 1 + wanted do create_stream(KEYS[at]) end
  -- Streams that are left over are read until they are empty; `shrink` ends that.
  local read_from = max(streams + 0, wanted)
  call('HSET', KEYS[META], 'streams', read_from, 'wanted', wanted, 'ready', ready .. rep('0', read_from - #ready))
  Rules.set_epoch(KEYS[META], following)
  return 'OK'
end

-- @verb shrink | allow-oom: stop reading the highest streams, one after the other, as long as the highest is empty.
-- Empty means no entry at all: acked messages are deleted, so what is in flight still keeps its stream.
-- KEYS[1] meta: the state of the queue
-- KEYS[2..] streams: from s<wanted> up to the highest that is read
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- Reply: number of streams that are read now, -1 when the epoch is another
function verbs.shrink(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check(ARGV, {'epoch', 'following'})
  local meta = KEYS[META]
  local present, streams, wanted, ready = unpack( -- at most 4: the fields
    call('HMGET', meta, 'epoch', 'streams', 'wanted', 'ready'))
  if present ~= ARGV[1] then return -1 end
  Arguments.check_streams(KEYS, 2, wanted + 0, streams - wanted)
  for at = 2, #KEYS do call('XLEN', KEYS[at]) end -- a key of another type is found before the first effect
  local left = streams + 0
  while left > wanted + 0 do
    local key = KEYS[1 + left - wanted]
    -- Both: messages in flight are in the stream, and not in the count; a count above an empty stream is for a read to
    -- notice.
    if call('XLEN', key) > 0 or tonumber(call('HGET', meta, key) or 0) > 0 then break end
    call('DEL', key)
    left = left - 1
    call('HDEL', meta, key, 'h' .. left)
  end
  if left < streams + 0 then
    local offset = call('HGET', meta, 'offset') + 0
    local place = offset % 10000 -- before it is how many messages were delivered (read.lua)
    call('HSET', meta, 'streams', left, 'ready', sub(ready, 1, left), 'offset',
      spell(place < left and offset or offset - place))
    Rules.set_epoch(meta, ARGV[2])
  end
  return left
end

-- @verb len | no-writes: messages that still ask for work now: backlog + in flight. Delayed messages count once they
-- are due.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] delayed: messages that are not yet due
-- KEYS[3] due: when time changes something for a shard key
-- KEYS[4] leases: tokens by end
-- KEYS[5] cancelled: messages in flight that were cancelled
-- Reply: a number, or -1 when there is no such queue
function verbs.len(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'delayed', 'due', 'leases', 'cancelled'})
  local keys = {
    [META] = KEYS[1], [DELAYED] = KEYS[2], [DUE] = KEYS[3], [LEASES] = KEYS[4], [CANCELLED] = KEYS[5],
  }
  local shared, text, odd = unpack(call('HMGET', KEYS[1], 'shared', 'line', 'odd')) -- at most 3: the fields
  if not shared then return -1 end
  local line = State.read_line(text)
  local living, delayed = State.count_living(keys, shared, line[2], State.read_odd(odd))
  -- Mostly nothing is delayed or limited, and nothing was cancelled in flight. (An ended lease counts as a live one.)
  local may_differ = line[5] < FAR or line[7] > 0
  local brought = may_differ and Present.of_queue(State.open_call(keys, 5)) or {due = 0, gone = 0}
  return max(0, living - max(0, delayed - brought.due) - brought.gone)
end

-- Returns how many messages a read could get now at least: above 0 exactly if it would get one.
local function count_runnable(q, ended)
  local most = Limits.limit_queue(q, 9e15)
  if q.places then most = min(most, q.places + ended) end
  if most <= 0 then return 0 end
  local number = q.shared + q.servable
  if q.walk ~= '' and q.behind > 0 then number = max(1, number) end -- not all were looked at since the rules changed
  return max(0, min(number, most))
end

-- Returns until when the whole queue is paused, and who paused it; '' if it is not.
local function spell_paused(q)
  local till = Limits.end_of_pause(q.odd, q.now)
  return till and spell(till) .. '\31' .. (call('HGET', q.keys[META], 'paused_by') or '') or ''
end

-- Returns how many messages were acked: those that are over and became nothing else. `gone` of those that were
-- cancelled in flight are over, since their leases are.
local function count_acked(q, living, gone)
  local last, adopted, redriven, expired, cancelled, purged, dead, vanished = unpack( -- at most 8: the fields
    call('HMGET', q.keys[META], 'last', 'adopted', 'redriven', 'expired', 'cancelled', 'purged', 'dead_lettered',
      'vanished'))
  local others = (expired or 0) + (cancelled or 0) - q.cancels + gone + (purged or 0) + (dead or 0) + (vanished or 0)
  return max(0, match(last, '%d+$') + adopted + (redriven or 0) - living - others)
end

-- @verb glance | no-writes: what a read would find, without a lease: who reads several queues in turn chooses by it.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] turns: who waits for a turn
-- Reply: {messages in the streams, the weights of the shard keys that wait for a turn together, 1 if time has brought
--        something that the next read takes back, or there is a legacy stream, in which a read may find some, and 0 if
--        not, the score in `turns` of the first that waits there, -1 if nobody does, the virtual time in 0.1 ms} | {}
--        when there is no such queue
function verbs.glance(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'turns'})
  local q = State.open_call({[META] = KEYS[1], [TURNS] = KEYS[2]}, 2, 'lease_at')
  if not q then return {} end
  local lease_at = q.values[State.COMMON + 1] + 0
  local has_come = lease_at <= q.now or q.due_at < q.now + 1 or q.rules.legacy_group
  return {q.shared, Limits.weight_of_turns(q), has_come and 1 or 0, Turns.look_at_first(q), q.virtual}
end

-- @verb stats | no-writes: the queue's numbers at one instant. Cost depends on the number of streams, not of messages.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: all of the queue's, in order; the legacy stream last if there is one
-- ARGV[1] legacy: '1' when the last declared stream is the legacy one
-- ARGV[2] most: of how many streams at most to return the undelivered messages; where there are more, of none
-- Reply: {now, backlog, in flight, delayed, dead, oldest ms (-1: none), {undelivered of s0, s1, ...}, legacy length,
--         {field, value, ...} of meta, held back, held back for limits, runnable, acked, tenants waiting, how many of
--         those that `retrying` counts came due, '1' if `oldest` is of a part of what waits, when the next message
--         comes due in ms (-1: none), how many do within a minute, "until\31since\31by\31note" if the whole queue is
--         paused or ''} | {now} when there is no such queue
function verbs.stats(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'flag', 'streams'})
  local q = State.open_call(KEYS, 18, 'ready', 'lease_at', 'streams')
  if not q then
    return {read_time()}
  end
  local meta = KEYS[META]
  local ready, lease_at, streams = unpack(q.values, State.COMMON + 1) -- at most 3: the fields
  q.ready, q.lease_at, q.walk = ready, lease_at + 0, q.odd.walk or ''
  local living, delayed = State.count_living(KEYS, q.shared, q.behind, q.odd)
  local brought = Present.of_queue(q)
  living, delayed = living - brought.gone, max(0, delayed - brought.due)
  local live = call('ZCARD', KEYS[LEASES]) - 1 - brought.ended
  local oldest, is_all = Ages.oldest(q, brought)
  local lengths = {}
  if streams + 0 <= ARGV[2] + 0 then
    local fields = {}
    for number = 0, streams - 1 do fields[number + 1] = sub(meta, 1, -5) .. 's' .. number end
    lengths = call('HMGET', meta, unpack(fields)) -- at most 4,096: the streams
    for at = 1, #fields do lengths[at] = tonumber(lengths[at] or 0) end
  end
  local legacy = ARGV[1] == '1' and call('XLEN', KEYS[#KEYS]) or 0
  local runnable = count_runnable(q, brought.ended)
  local next_due, due_soon = nil, 0
  if delayed > 0 then next_due, due_soon = Present.find_due_soon(q) end
  return {
    q.now, max(0, living - delayed - live), live, delayed, call('XLEN', KEYS[DEAD]), oldest, lengths, legacy,
    facts_of(meta), q.behind, max(0, q.behind - q.servable), runnable,
    count_acked(q, living, brought.gone), q.turns, brought.retrying, is_all and '' or '1',
    next_due or -1, due_soon, spell_paused(q),
  }
end
