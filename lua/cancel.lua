#!lua flags=allow-oom
-- cancel: remove a waiting or delayed message wherever it is; mark one that is in flight.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] notifications: wakes blocked readers
-- KEYS[11] accounts: what each shard key holds
-- KEYS[12] shard_keys: shard keys of what is delayed
-- KEYS[13] overflow: handles that wait for room
-- KEYS[14] journal: what happened to the messages
-- KEYS[15] finished: ids of messages that have ended, for those who wait
-- KEYS[16..] streams: the stream that the id names, unless it names the store
-- ARGV[1] message_id: as write returned it
-- ARGV[2] place: the last part of the id
-- ARGV[3] id: the rest of it
-- ARGV[4] client: what the journal calls the caller
-- Reply: 'removed' | 'in flight' | 'dead' | 'unknown'
--- @use time, keys, streams, redelivery, accounts, overflow, whereabouts, window, ends
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], delayed = KEYS[4], redelivery = KEYS[5], bodies = KEYS[6], attempts = KEYS[7],
  cancelled = KEYS[8], moved = KEYS[9], notifications = KEYS[10], accounts = KEYS[11], shard_keys = KEYS[12], overflow = KEYS[13],
  journal = KEYS[14], finished = KEYS[15], now = read_clock(), lengths = {},
}
local message_id, place, id, client, stream = ARGV[1], ARGV[2], ARGV[3], ARGV[4], KEYS[16]
check_types({q.meta, q.lens, q.attempts, q.moved, q.accounts, q.shard_keys}, {q.ready, q.delayed, q.redelivery, q.overflow},
  {q.bodies, stream})
local waiting, streams, fair, journal_size, written = unpack( -- at most 5: the fields
  redis.call('HMGET', q.meta, 'waiting', 'streams', 'fair', 'journal', 'n'))
q.waiting_until, q.stream_count, q.positions_from = tonumber(waiting), tonumber(streams), tonumber(written)
q.journal_size = tonumber(journal_size or '0')

local found = find_message(q, message_id, place, id, stream)
if not found then return 'unknown' end
if found.is_dead then return 'dead' end
if found.is_cancelled then return 'in flight' end
if not found.fields then return 'unknown' end
local handle, fields, score = found.handle, found.fields, found.score
local shard_key, counts = fields[2], fair == '1' and fields[1] == 'K'

-- It waits in a stream or in a redelivery queue, or it is delayed, or held back in an overflow; else it is in flight.
if counts then
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
  end
end
redis.call('XDEL', found.key, found.id)
redis.call('HINCRBY', q.meta, 'cancelled', 1)
local in_flight = false
if score or found.is_new then
  remove_undelivered(q, score and dequeue_message(q, handle, score) or found.place)
  if counts then count_messages(q, find_account(q, shard_key), -1, 0) end
elseif found.due then
  redis.call('ZREM', q.delayed, handle)
  if counts then forget_delayed(q, handle) end
else
  in_flight = not counts or not remove_held(q, shard_key, found.place, string.match(found.id, '%d+$'))
end
if q.journal_size > 0 then
  --- @use journal, messages
  begin_events(q)
  note_message(q, in_flight and 'k' or 'c', found.place, found.id, fields, 0)
  save_events(q, client)
end
announce_ends(q, {message_id})

-- Whoever ends the lease of a message in flight forgets what is left of it: of a redriven one, its original id.
if in_flight then
  redis.call('SADD', q.cancelled, handle)
  if found.lies_at then redis.call('HSET', q.attempts, handle, '0|| i' .. message_id) end
  return 'in flight'
end
if found.lies_at then redis.call('HDEL', q.moved, message_id) end
redis.call('HINCRBY', q.meta, 'gone', 1)
redis.call('HDEL', q.attempts, handle)
if counts then close_accounts(q) end
return 'removed'
