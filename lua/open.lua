#!lua flags=allow-oom
-- open: create the queue if it is missing, create missing keys again, and say what the queue is. Also on a full server:
-- a reader that starts must be able to drain it.
-- KEYS[1] meta: epoch, counters, settings
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[8] bodies: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dedup: dedup keys, producer sequences and bulk offsets
-- KEYS[12] dedup_index: dedup keys by end
-- KEYS[13] dead: dead letters
-- KEYS[14] moved: where redriven messages lie now
-- KEYS[15] accounts: what each shard key holds
-- KEYS[16] shard_keys: shard keys of what is delayed
-- KEYS[17] overflow: handles that wait for room
-- KEYS[18] assigned: shards of named shard keys
-- KEYS[19] journal: what happened to the messages
-- KEYS[20] producers: sequences of producers by end
-- KEYS[21] bulk_offsets: offsets of bulk writes by end
-- KEYS[22] due: when the buckets of the timed indexes are due
-- KEYS[23] limits: the limits of shard keys that have any
-- KEYS[24] results: what is kept of messages
-- KEYS[25] result_ends: the same by end
-- KEYS[26] finished: ids of messages that have ended, for those who wait
-- KEYS[27..] streams: as many as the caller would create
-- ARGV[1] streams: how many to create if the queue is missing, 0 = do not create
-- ARGV[2] epoch: its first one, a nonce; epochs are only ever compared for being the same. It is part of the queue's id, too
-- ARGV[3..] settings: name, value, ... stored if the queue is created
-- Reply: {'CREATED' | 'OK' | 'NOQUEUE', now, {field, value, ...} of meta}
--- @use time
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], notifications = KEYS[4], leases = KEYS[5], delayed = KEYS[6],
  redelivery = KEYS[7], bodies = KEYS[8], attempts = KEYS[9], cancelled = KEYS[10], dedup = KEYS[11], dedup_index = KEYS[12],
  dead = KEYS[13], moved = KEYS[14], accounts = KEYS[15], shard_keys = KEYS[16], overflow = KEYS[17], assigned = KEYS[18],
  journal = KEYS[19], producers = KEYS[20], bulk_offsets = KEYS[21], due = KEYS[22], limits = KEYS[23],
  results = KEYS[24], result_ends = KEYS[25], finished = KEYS[26], now = read_clock(),
}
local wanted, epoch = tonumber(ARGV[1]), ARGV[2]
local exists = redis.call('HEXISTS', q.meta, 'epoch') == 1
if not exists and wanted == 0 then return {'NOQUEUE', q.now, {}} end

--- @use keys, streams
create_sorted_sets({q.ready, q.redelivery}, -1)
create_sorted_sets({q.leases, q.delayed, q.due, q.dedup_index, q.producers, q.bulk_offsets, q.result_ends}, NEVER)
create_sorted_sets({q.overflow}, 0)
redis.call('SADD', q.cancelled, '')
-- A value of more than 64 bytes makes it a table: in the packed form each of many fields is searched from the start.
for _, key in ipairs({q.lens, q.meta, q.accounts}) do redis.call('HSETNX', key, '', string.rep(' ', 65)) end
create_hashes({q.attempts, q.moved, q.shard_keys, q.assigned, q.limits, q.results})
create_dedup(q.dedup, q.now)
for _, key in ipairs({q.bodies, q.dead, q.journal, q.finished}) do create_stream(key) end
if redis.call('EXISTS', q.notifications) == 0 then
  redis.call('XGROUP', 'CREATE', q.notifications, 'shardq', '$', 'MKSTREAM')
end

if not exists then
  for i = 27, 26 + wanted do create_stream(KEYS[i]) end
  -- The id clock starts above whatever is left in the streams; the epoch is new for every life of the queue. Its id stays the
  -- same for all of that life, and says when it began.
  local id = string.format('%.0f-%s', q.now, epoch)
  redis.call('HSET', q.meta, 'epoch', epoch, 'streams', wanted, 'wanted', wanted, 'offset', 0, 'n', 0, 'ms', q.now,
    'waiting', 0, 'jump', '', 'owed', 0, 'gone', 0, 'adopted', 0, 'created', q.now, 'id', id, 'cap_no', 0)
  for at = 3, #ARGV, 2 do redis.call('HSET', q.meta, ARGV[at], ARGV[at + 1]) end
  --- @use rules
  save_mark(q)
end
-- Events are numbered from the microsecond of the queue's creation: those of a next life are higher, whatever happened.
redis.call('HSETNX', q.meta, 'events', string.format('%.0f', redis.call('HGET', q.meta, 'created') * 1000))
return {exists and 'OK' or 'CREATED', q.now, redis.call('HGETALL', q.meta)}
