#!lua
-- replace: give a message with a unique key, which waits, another payload. It keeps its id, and its place unless it is delayed.
-- KEYS[1] meta: the epoch, the id clock, counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] delayed: handles by due time in ms
-- KEYS[6] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[7] bodies: bodies of delayed messages
-- KEYS[8] attempts: what is known of messages delivered before
-- KEYS[9] dedup: unique keys, and the calls that were done
-- KEYS[10] dedup_index: when to look at these
-- KEYS[11] moved: where messages lie that were replaced or redriven
-- KEYS[12] accounts: what each shard key holds
-- KEYS[13] shard_keys: shard keys of what is delayed
-- KEYS[14] overflow: handles that wait for room
-- KEYS[15] due: when the buckets of the timed indexes are due
-- KEYS[16] journal: what happened to the messages
-- ARGV[1] epoch: the caller's idea of it
-- ARGV[2] nonce: of this call, which is done once however often it is repeated
-- ARGV[3] keep: for how many ms that may happen
-- ARGV[4] message_id: of the message that has the key
-- ARGV[5] unique_key: that key
-- ARGV[6] shard: streams that the message may go to now, "3,17"
-- ARGV[7] shard_key: whose it is now
-- ARGV[8] tag: of the codec
-- ARGV[9] payload: as it is stored
-- ARGV[10] headers: '' for none
-- ARGV[11] delay: ms from now on, '' = it comes due when it would have
-- ARGV[12] lasts: ms to its deadline, '' for none
-- ARGV[13] max_deliveries: if the queue does not say how many
-- ARGV[14] client: what the journal calls the caller
-- Reply: 'OK' | 'GONE': the key is free | 'FLIGHT': it is being worked on, or on its way to the dead letters | 'EPOCH'
--- @use time, keys, accounts, attempts, messages, notifications, overflow, producers, redelivery, schedule, scopes, streams, unique
--- @use window
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], notifications = KEYS[4], delayed = KEYS[5], redelivery = KEYS[6], bodies = KEYS[7],
  attempts = KEYS[8], dedup = KEYS[9], dedup_index = KEYS[10], moved = KEYS[11], accounts = KEYS[12], shard_keys = KEYS[13],
  overflow = KEYS[14], due = KEYS[15], journal = KEYS[16], now = read_clock(), lengths = {}, due_times = {}, buckets = {},
}
local epoch, nonce, keep, message_id, unique_key, shard = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local shard_key, tag, payload, headers, delay, lasts, client = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[14]
check_types({q.lens, q.attempts, q.dedup, q.moved, q.accounts, q.shard_keys}, {q.ready, q.delayed, q.redelivery, q.dedup_index, q.overflow, q.due},
  {q.notifications, q.bodies, q.journal})
local present, last_ms, waiting, streams, fair, written, max_deliveries, journal_size, scope = unpack( -- at most 9: the fields
  redis.call('HMGET', q.meta, 'epoch', 'ms', 'waiting', 'streams', 'fair', 'n', 'max_deliveries', 'journal', 'key_scope'))
if redis.call('HEXISTS', q.dedup, 'r:' .. nonce) == 1 then
  redis.call('HSET', q.meta, 'ms', last_ms) -- WAIT waits for what its own connection wrote last
  return 'OK'
end
if present ~= epoch then return 'EPOCH' end
q.waiting_until, q.stream_count, q.positions_from = tonumber(waiting), tonumber(streams), tonumber(written)
q.journal_size = tonumber(journal_size or '0')

unique_key = scope_key(scope, shard_key, unique_key)
local holder, entry_id = find_unique(q, unique_key)
if holder ~= message_id then return 'GONE' end
local handle, number = 'd:' .. entry_id, string.match(entry_id, '%d+$')
local fields, known = redis.call('XRANGE', q.bodies, entry_id, entry_id)[1][2], redis.call('HGET', q.attempts, handle)
local deliveries, _, last_error, is_rejected, since = parse_attempts(known)
if is_rejected or deliveries >= tonumber(max_deliveries or ARGV[13]) then return 'FLIGHT' end

-- It is taken from where it waits: in a redelivery queue, delayed, or held back. If it is in none of these, it is in flight.
local before, score, was_due = fields[2], redis.call('ZSCORE', q.redelivery, handle), redis.call('ZSCORE', q.delayed, handle)
local counts, due, is_held = fair == '1' and fields[1] == 'K', delay ~= '' and q.now + delay, false
local stays = not due and before == shard_key
if counts then
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
  end
end
if score then
  if stays then
    redis.call('ZREM', q.redelivery, handle)
  else
    remove_undelivered(q, dequeue_message(q, handle, score))
    if counts then count_messages(q, find_account(q, before), -1, 0) end
    due = due or q.now
  end
elseif was_due then
  redis.call('ZREM', q.delayed, handle)
  if counts then forget_delayed(q, handle) end
  due = due or was_due % SPAN
elseif counts and remove_held(q, before, 'd', number) then
  is_held, due = stays, not stays and (due or q.now)
else
  return 'FLIGHT'
end

-- It gets a new entry under its number, by which messages are ordered. So the id clock must go on.
local ms = math.max(q.now, last_ms + 1)
local id = string.format('%.0f-', ms) .. number
local attributes, was_delayed = ' i' .. message_id, string.match(attributes_of(fields), ' t%d+')
if delay ~= '' then was_delayed = delay ~= '0' and string.format(' t%.0f', due) end
if was_delayed then attributes = was_delayed .. attributes end
if lasts ~= '' then attributes = string.format(' x%.0f', q.now + lasts) .. attributes end
q.mark = fields[1]
append_message(q, q.bodies, id, shard_key, tag, payload, attributes, headers)
redis.call('XDEL', q.bodies, entry_id)
redis.call('HDEL', q.attempts, handle)
redis.call('HSET', q.moved, message_id, 'd:' .. id)
redis.call('HSET', q.meta, 'ms', string.format('%.0f', ms))
handle = 'd:' .. id
if due or known then
  redis.call('HSET', q.attempts, handle, spell_attempts(deliveries, shard, last_error, due or tonumber(since) or 0))
end

if due then
  redis.call('ZADD', q.delayed, score_at(q, 'd', counts and shard_key, due), handle)
  if counts then
    redis.call('HSET', q.shard_keys, handle, shard_key)
    count_delayed(q, shard_key, 1)
  end
  save_due_times(q)
  if due - q.now < SOON then notify_reader(q, '') end
elseif is_held then
  hold_returned(q, shard_key, {{number = tonumber(number), ms = ms, shard = shard, place = 'd', is_known = known and true}})
  save_added(q)
else
  redis.call('ZADD', q.redelivery, score, handle)
end
if counts then close_accounts(q) end

-- More is forgotten than comes in: where one message is replaced again and again, no write does it.
forget_ended(q, q.dedup_index, 4)
save_unique(q, unique_key, id, message_id)
redis.call('HSET', q.dedup, 'r:' .. nonce, string.format('%.0f|', q.now + keep))
redis.call('ZADD', q.dedup_index, string.format('%.0f', q.now + keep), 'r:' .. nonce)
if q.journal_size > 0 then
  --- @use journal
  begin_events(q)
  note_event(q, 'y', message_id, shard_key, deliveries, due and due > q.now and due)
  save_events(q, client)
end
return 'OK'
