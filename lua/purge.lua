#!lua flags=allow-oom
-- purge: remove up to `most` undelivered and delayed messages; what is in flight stays. The call that finds nothing left
-- moves the epoch, so that no copy of a call that comes late removes what was written since.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] moved: where redriven messages lie now
-- KEYS[9] accounts: what each shard key holds
-- KEYS[10] shard_keys: shard keys of what is delayed
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] journal: what happened to the messages
-- KEYS[13..] streams: the declared ones
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: in this call
-- ARGV[4] numbers: stream numbers of the declared streams, "3,17,l"
-- ARGV[5] client: what the journal calls the caller
-- Reply: {'OK', how many were removed, 1 when there may be more} | {'NOQUEUE'} | {'EPOCH'}
--- @use time, keys, epochs, journal, streams, removal
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], delayed = KEYS[4], redelivery = KEYS[5], bodies = KEYS[6], attempts = KEYS[7],
  moved = KEYS[8], accounts = KEYS[9], shard_keys = KEYS[10], overflow = KEYS[11], journal = KEYS[12], now = read_clock(),
  most = tonumber(ARGV[3]), purged = 0, vanished = 0,
}
local epoch, following, client = ARGV[1], ARGV[2], ARGV[5]
local answer = check_epoch(q, epoch, following)
if answer then return {answer, 0, 0} end

-- Redis does not roll a script back: a key of another type must be found before the first effect.
check_types({q.meta, q.lens, q.attempts, q.moved, q.accounts, q.shard_keys},
  {q.ready, q.delayed, q.redelivery, q.overflow}, {q.bodies})
q.keys = {d = q.bodies}
local at_key = 12
for number in string.gmatch(ARGV[4], '[^,]+') do
  at_key = at_key + 1
  q.keys[number == 'l' and LEGACY or number], q.keys[number] = KEYS[at_key], KEYS[at_key]
  redis.call('XLEN', KEYS[at_key])
end

local fair, journal_size = unpack(redis.call('HMGET', q.meta, 'fair', 'journal')) -- at most 2: the fields
q.is_fair, q.journal_size = fair == '1', tonumber(journal_size or '0')
if q.journal_size > 0 then begin_events(q) end
if q.is_fair then
  --- @use window
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
  end
end

-- First what waits in the streams and their redelivery queues, then what is delayed, then what is held back.
local more = false
for _, number in ipairs(redis.call('ZRANGEBYSCORE', q.ready, 0, '+inf', 'LIMIT', 0, q.most)) do
  if q.keys[number] and q.purged < q.most then
    more = true
    purge_stream(q, number)
  end
end
if q.purged < q.most then purge_delayed(q) end
if q.is_fair then
  --- @use accounts, window
  purge_overflow(q)
  save_accounts(q)
  -- Should nobody go on with this purge, nothing in the streams would bring in what is still held back: the reads have to.
  if (q.held or 0) > 0 then request_walk(q) end
end

redis.call('HINCRBY', q.meta, 'gone', q.purged + q.vanished)
redis.call('HINCRBY', q.meta, 'purged', q.purged)
redis.call('HINCRBY', q.meta, 'vanished', q.vanished)
if q.events then save_events(q, client) end
more = more or q.purged > 0
if not more then redis.call('HSET', q.meta, 'epoch', following) end
return {'OK', q.purged, more and 1 or 0}
