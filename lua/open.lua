#!lua flags=allow-oom
-- open: create the queue if it is missing, mend missing keys, and tell what the queue is. Also on a full server:
-- a reader that starts must be able to drain it.
-- KEYS[1] meta: epoch, counters, settings
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] returned: handles that wait for another delivery, by turn
-- KEYS[8] later: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dedup: dedup keys, lanes and tallies
-- KEYS[12] dedup_index: dedup keys by end
-- KEYS[13] dead: dead letters
-- KEYS[14] moved: where redriven messages lie now
-- KEYS[15] tenants: what each shard key holds
-- KEYS[16] owners: shard keys of what is delayed
-- KEYS[17] overflow: handles that wait for room
-- KEYS[18] assigned: hands of named shard keys
-- KEYS[19] journal: what happened to the messages
-- KEYS[20] lanes: lanes by end
-- KEYS[21] tallies: lanes that count messages, by end
-- KEYS[22] due: when the buckets of the timed indexes are due
-- KEYS[23..] streams: as many as the caller would create
-- ARGV[1] streams: how many to create if the queue is missing, 0 = do not create
-- ARGV[2] epoch: its first one, a nonce; epochs are only ever compared for being the same
-- ARGV[3..] settings: name, value, ... stored if the queue is created
-- Reply: {'CREATED' | 'OK' | 'NOQUEUE', now, {field, value, ...} of meta}
local meta, lens, ready, notifications, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local returned, later, attempts, cancelled = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local dedup, dedup_index, dead, moved = KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local tenants, owners, overflow, assigned, journal = KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local lanes, tallies, due = KEYS[20], KEYS[21], KEYS[22]
local wanted = tonumber(ARGV[1])
--- @include lib/server_ms
local now = server_ms()
--- @include lib/never
--- @include lib/ensure_stream
local function ensure_sorted(key, score)
  redis.call('ZADD', key, 'NX', score, '')
end
local exists = redis.call('HEXISTS', meta, 'epoch') == 1
if not exists and wanted == 0 then return {'NOQUEUE', now, {}} end

ensure_sorted(ready, -1)
ensure_sorted(returned, -1)
ensure_sorted(leases, NEVER)
ensure_sorted(delayed, NEVER)
ensure_sorted(due, NEVER)
ensure_sorted(dedup_index, NEVER)
ensure_sorted(lanes, NEVER)
ensure_sorted(tallies, NEVER)
ensure_sorted(overflow, 0)
redis.call('SADD', cancelled, '')
-- A value of more than 64 bytes makes it a table: in the packed form each of many fields is searched from the start.
redis.call('HSETNX', lens, '', string.rep(' ', 65))
for _, hash in ipairs({attempts, dedup, moved, tenants, owners, assigned}) do redis.call('HSETNX', hash, '', '') end
ensure_stream(later)
ensure_stream(dead)
ensure_stream(journal)
if redis.call('EXISTS', notifications) == 0 then
  redis.call('XGROUP', 'CREATE', notifications, 'shardq', '$', 'MKSTREAM')
end

if not exists then
  for i = 23, 22 + wanted do ensure_stream(KEYS[i]) end
  -- The id clock starts above whatever is left in the streams; the epoch is new for every life of the queue.
  redis.call('HSET', meta, 'epoch', ARGV[2], 'streams', wanted, 'wanted', wanted, 'offset', 0, 'n', 0, 'ms', now,
    'waiting', 0, 'jump', '', 'owed', 0, 'gone', 0, 'adopted', 0, 'created', now, 'cap_no', 0)
  for at = 3, #ARGV, 2 do redis.call('HSET', meta, ARGV[at], ARGV[at + 1]) end
end
-- Events are numbered from the microsecond of the queue's creation: those of a next life are higher, whatever happened.
redis.call('HSETNX', meta, 'events', string.format('%.0f', redis.call('HGET', meta, 'created') * 1000))
return {exists and 'OK' or 'CREATED', now, redis.call('HGETALL', meta)}
