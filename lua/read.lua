#!lua flags=allow-oom
-- read: take back ended leases, let due messages in, then deliver up to `count` messages, from one stream after the other
-- beginning at the shared offset. No stream is left out: one whose key is not declared ends the read, and the hints name it.
-- KEYS[1] meta: epoch, streams, offset, counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[8] bodies: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dead: dead letters
-- KEYS[12] moved: where redriven messages lie now
-- KEYS[13] accounts: what each shard key holds, where the queue is fair
-- KEYS[14] shard_keys: shard keys of what is delayed
-- KEYS[15] overflow: handles that wait for room in the shared streams
-- KEYS[16] journal: what happened to the messages
-- KEYS[17] due: when the buckets of the timed indexes are due
-- KEYS[18..] streams: the declared ones, the legacy stream among them
-- ARGV[1] count: at most so many messages; a queue with a window or a cap may give fewer, and then says 'MORE'
-- ARGV[2] holder: nonce that makes the leases of this call its own
-- ARGV[3] visibility: ms that the leases last
-- ARGV[4] clock: what the caller says of the server's clock (see `read_view`); '' = nothing yet, take back no lease
-- ARGV[5] max_deliveries: more than that is dead, if the queue does not say how many
-- ARGV[6] max_dead: dead letters at most, if the queue does not say how many
-- ARGV[7] blocks: ms for which the caller will block if there is nothing, 0 = it will not
-- ARGV[8] width: how many hints to return
-- ARGV[9] prefer: stream to try first, '' for none
-- ARGV[10] legacy_group: of the legacy stream, '' for none
-- ARGV[11] client: what the journal calls the caller
-- ARGV[12..] numbers: of the declared streams, 'l' for the legacy stream
-- Reply: {'OK' | 'MISS': a stream was not declared, there may be more | 'MORE': there may be more | 'VOID' | 'NOQUEUE', now, epoch, ms to the next deadline or due time (-1: none), hints "3,17",
--         {place or "d:streams", {{id, {field, value, ...}}, ...}, place, ...} delivered for the first time,
--         {{"place:id:count" or "place:id:count:streams", error, {field, ...}, deliverable since ('' or ms)}, ...} delivered before}
--- @use time, offset, deliveries
local meta, view, blocks, prefer, client = KEYS[1], ARGV[4], tonumber(ARGV[7]), ARGV[9], ARGV[11]
local now, visibility = read_clock(), tonumber(ARGV[3])
local epoch, streams, offset, waiting, jump, owed, fair, journal_size, void = unpack( -- at most 9: the fields
  redis.call('HMGET', meta, 'epoch', 'streams', 'offset', 'waiting', 'jump', 'owed', 'fair', 'journal', 'void'))
local q = {
  meta = meta, lens = KEYS[2], ready = KEYS[3], notifications = KEYS[4], leases = KEYS[5], delayed = KEYS[6],
  redelivery = KEYS[7], bodies = KEYS[8], attempts = KEYS[9], cancelled = KEYS[10], dead = KEYS[11], moved = KEYS[12],
  accounts = KEYS[13], shard_keys = KEYS[14], overflow = KEYS[15], journal = KEYS[16], due = KEYS[17], streams = {},
  now = now, visibility = visibility, ends = string.format('%.0f', now + visibility), holder = ARGV[2],
  count = tonumber(ARGV[1]), most_due = 64, width = tonumber(ARGV[8]), known_max_deliveries = ARGV[5], known_max_dead = ARGV[6],
  legacy_group = ARGV[10], is_legacy_done = ARGV[10] == '', stream_count = tonumber(streams), offset = tonumber(offset),
  owed = tonumber(owed), waiting_until = tonumber(waiting), is_fair = fair == '1', journal_size = tonumber(journal_size or '0'),
  lengths = {}, cursors = {}, spare = {}, first_time = {}, again = {}, leased = {},
  due_times = {}, buckets = {}, stream_lists = {}, status = 'OK', found = 0, examined = 0, gone = 0, expired = 0, vanished = 0, adopted = 0,
}
for i = 12, #ARGV do q.streams[ARGV[i]] = KEYS[i + 6] end
q.streams[LEGACY] = q.streams['l']
if not epoch then return {'NOQUEUE'} end

-- The caller may have given up on this read while it was under way. `recover` gave back then what the read was granted, and noted
-- it as "until when|holder,holder,...". Such a read delivers nothing, since nobody would know of it. What is over is forgotten.
if void then
  if string.find(void, q.holder, 1, true) then return {'VOID', q.now, epoch, -1, '', {}, {}} end
  if tonumber(string.match(void, '^%d+')) < q.now then redis.call('HDEL', q.meta, 'void') end
end
if q.journal_size > 0 then
  --- @use journal
  begin_events(q)
end
if q.is_fair then
  --- @use fairness
  begin_fair_read(q)
end

-- Ended leases and due messages come back into the queue. A jump of the clock changes which leases have ended.
local has_ended = redis.call('ZCOUNT', q.leases, '-inf', q.now) > 0 or string.find(view, 'j', 1, true)
local has_due = redis.call('ZCOUNT', q.delayed, '-inf', q.now) > 0
q.has_redeliveries = redis.call('ZCARD', q.redelivery) > 1
q.has_due_buckets = q.is_fair and redis.call('ZCOUNT', q.due, '-inf', q.now) > 0
if has_ended or has_due or q.has_due_buckets then
  --- @use keys, time, due, redelivery
  local items = {}
  check_read_types(q, nil)
  redis.call('ZCARD', q.due)
  local any_cancelled = redis.call('SCARD', q.cancelled) > 1
  if (has_ended or q.has_due_buckets) and view ~= '' then
    local clock = read_view(view)
    q.jump = update_jump(q, clock, jump or '')
    items = reap_leases(q, end_of_leases(q, clock), any_cancelled)
  end
  if has_due or q.has_due_buckets then promote_messages(q, items) end
  q.count = math.min(q.count, q.most_due)
  if q.is_fair then
    --- @use window
    give_back_messages(q, items)
  else
    arrange_messages(items)
    enqueue_messages(q, items)
  end
  q.has_redeliveries = redis.call('ZCARD', q.redelivery) > 1
end

-- A plain read takes new messages only. Another one looks into the redelivery queue, or at the legacy stream; and in a fair queue,
-- a message that leaves makes room for another one.
local steps = {take = take_new_of}
if prefer ~= '' or q.has_redeliveries or q.is_fair or not q.is_legacy_done then
  --- @use offset, redelivery, deliveries
  q.taken, q.taken_from, q.removed, q.queues, q.entries = {}, {}, {}, {}, {}
  steps.take, steps.read_ahead, steps.deliver = take_any_of, read_queues_of, deliver_taken
  if q.is_fair then
    --- @use fairness
    steps.end_round, steps.finish = end_round, end_fair_read
    if q.has_turns then
      --- @use turns
      steps.take, steps.stays = take_turn, stays_for_turns
    end
  end
  if prefer ~= '' then take_preferred(q, prefer) end
end

-- Messages are taken until there are enough or no more, or until a stream is not declared.
local has_more
repeat
  local numbers = list_next(q, q.count == 1 and 1 + q.width or q.count - q.found)
  if q.count > 1 then load_streams(q, numbers) end
  if steps.read_ahead then steps.read_ahead(q, numbers, q.count - q.found) end
  take_round(q, numbers, steps.take, steps.stays)
  if steps.deliver then steps.deliver(q) end
  has_more = #numbers > 0
  if steps.end_round and q.status == 'OK' then
    local has_nothing = q.found == 0 and not has_more
    has_more = steps.end_round(q) or has_more
    if has_nothing and not has_more then
      --- @use walks
      has_more = search_overflow(q)
      q.has_redeliveries = has_more
    end
  end
until q.status ~= 'OK' or q.found == q.count or not has_more

-- All that was due may have expired or died, and what is due behind it may be for delivery: then the caller reads again.
if q.found == 0 and q.has_more_due and q.status == 'OK' then q.status = 'MORE' end

-- What happened is written down.
local wait = -1
if q.found == 0 then
  --- @use notifications, schedule
  if q.status == 'OK' then clear_notifications(q, blocks) end
  wait = ms_to_next_event(q)
end
if steps.finish then steps.finish(q) end
save_leases(q)
save_streams(q)
if q.gone ~= 0 or q.adopted ~= 0 then
  --- @use deliveries
  save_counters(q)
end
if q.events then
  --- @use deliveries, journal
  note_deliveries(q)
  save_events(q, client)
end
if q.owed ~= tonumber(owed) then redis.call('HSET', q.meta, 'owed', q.owed) end
if q.offset ~= tonumber(offset) then redis.call('HSET', q.meta, 'offset', q.offset) end
local hints = name_hints(q)
if q.found > 0 then q.status = (q.has_more_due or q.found == q.count and q.count < tonumber(ARGV[1])) and 'MORE' or 'OK' end
return {q.status, q.now, epoch, wait, hints, q.first_time, q.again}
