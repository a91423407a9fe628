#!lua
-- redrive: move dead letters back into the queue, to be delivered at once. Their ids and headers stay.
-- KEYS[1] meta: id clock, counters, who waits
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages that wait
-- KEYS[8] dead: dead letters
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] accounts: what each shard key holds
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] journal: what happened to the messages
-- KEYS[13] due: when the buckets of the timed indexes are due
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] client: what the journal calls the caller
-- ARGV[3..] dead_letters: three each: entry id in `dead`, message id, streams of the shard "3,17"
-- Reply: how many were moved. An entry that is gone, or is no dead letter, is left out; a repeated call counts those that the
--        first try moved
--- @use time, keys, attempts, dead_letters, journal
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], notifications = KEYS[4], redelivery = KEYS[5], bodies = KEYS[6],
  attempts = KEYS[7], dead = KEYS[8], moved = KEYS[9], accounts = KEYS[10], overflow = KEYS[11], journal = KEYS[12],
  due = KEYS[13], now = read_clock(), lengths = {}, stream_lists = {},
}
local repeated, client = ARGV[1] == '1', ARGV[2]
check_types({q.lens, q.attempts, q.moved, q.accounts}, {q.ready, q.redelivery, q.overflow, q.due}, {q.notifications, q.bodies, q.dead})
local written, last_ms, waiting, streams, fair, journal_size = unpack( -- at most 6: the fields
  redis.call('HMGET', q.meta, 'n', 'ms', 'waiting', 'streams', 'fair', 'journal'))
q.positions_from, q.waiting_until, q.stream_count = tonumber(written), tonumber(waiting), tonumber(streams)
q.is_fair, q.journal_size = fair == '1', tonumber(journal_size or '0')
if q.journal_size > 0 then begin_events(q) end

-- Each dead letter becomes a message with a new entry id, under which the id that its writer was given leads to it.
local n, ms = q.positions_from, math.max(q.now, tonumber(last_ms))
local back, count = {}, 0
for at = 3, #ARGV, 3 do
  local entry_id, message_id, shard = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local item = restore_message(q, entry_id, shard, ms, n + 1)
  if item then
    n, count, back[#back + 1] = n + 1, count + 1, item
  elseif repeated then
    count = count + redis.call('HEXISTS', q.moved, message_id)
  end
end
save_attempts(q, back)
redis.call('HINCRBY', q.meta, 'redriven', #back)
redis.call('HSET', q.meta, 'n', string.format('%.0f', n), 'ms', string.format('%.0f', ms))
if q.events then save_events(q, client) end

-- All are to be delivered at once. One whose shard key has no room waits in the overflow.
if q.is_fair then
  --- @use window, accounts, redelivery
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
    begin_looks(q)
  end
  give_back_messages(q, back)
  save_accounts(q)
  save_positions(q)
else
  --- @use redelivery
  arrange_messages(back)
  enqueue_messages(q, back)
end
return count
