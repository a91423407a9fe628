#!lua flags=allow-oom
-- recover: a read's reply was lost; give back what its holder was granted, without counting that delivery.
-- These leases end at the same ms, which is not known at first. They are looked for in one bucket after the other, from the
-- latest end on; as soon as one is found, only leases with that end are looked at.
-- KEYS[1] meta: who waits
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[7] attempts: deliveries so far of what was given back
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] accounts: what each shard key holds
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] bodies: bodies of delayed messages
-- KEYS[13] journal: what happened to the messages
-- KEYS[14] due: when the buckets of the timed indexes are due
-- ARGV[1] holder: nonce of the lost read, '' when whole tokens follow
-- ARGV[2] from: its leases end at this server time in ms or later
-- ARGV[3] visibility: ms that they last
-- ARGV[4] page: look at so many leases
-- ARGV[5] where: to go on, as the last call replied; '' in the first one
-- ARGV[6] client: what the journal calls the caller
-- ARGV[7..] tokens: what to give back, where it is known
-- Reply: the next call's `where`, '' when there is no more to look for. The same again: take a larger page
--- @use time, keys, leases, attempts, messages, journal
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], notifications = KEYS[4], leases = KEYS[5], redelivery = KEYS[6],
  attempts = KEYS[7], cancelled = KEYS[8], moved = KEYS[9], accounts = KEYS[10], overflow = KEYS[11], bodies = KEYS[12],
  journal = KEYS[13], due = KEYS[14], now = read_clock(), lengths = {}, stream_lists = {},
}
local holder, from, visibility, page = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local where, client = ARGV[5], ARGV[6]
check_types({q.lens, q.attempts, q.moved, q.accounts}, {q.ready, q.redelivery, q.overflow, q.due}, {q.notifications, q.bodies})
local any_cancelled = redis.call('SCARD', q.cancelled) > 1
local waiting, streams, fair, journal_size, written, total_in_flight = unpack( -- at most 6: the fields
  redis.call('HMGET', q.meta, 'waiting', 'streams', 'fair', 'journal', 'n', 'total_in_flight'))
q.waiting_until, q.stream_count, q.positions_from = tonumber(waiting), tonumber(streams), tonumber(written)
q.is_fair, q.journal_size = fair == '1', tonumber(journal_size or '0')
if q.journal_size > 0 then begin_events(q) end
if q.is_fair then
  --- @use window
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
    begin_looks(q)
  end
end

local tokens, next_where = {}, ''
if holder ~= '' then
  --- @use lost_reads
  if where == '' then note_lost_read(q, holder) end
  local search = parse_search(where, from, q.now + visibility)
  tokens, next_where = search_leases(q, search, holder, page)
else
  for at = 7, #ARGV do
    if redis.call('ZSCORE', q.leases, ARGV[at]) then tokens[#tokens + 1] = ARGV[at] end
  end
end
if #tokens > 0 then redis.call('ZREM', q.leases, unpack(tokens)) end -- at most 250: what one read was granted, or a chunk

-- The delivery that nobody saw does not count. Of a message that was never delivered before nothing is known, and nothing must
-- stay behind when it is acked.
local back, known = {}, {}
for _, item in ipairs(end_leases(q, tokens, any_cancelled)) do
  if item then
    item.deliveries, item.since, back[#back + 1] = item.deliveries - 1, q.now, item
    if item.deliveries > 0 or item.shard ~= '' or item.last_error ~= '' then known[#known + 1] = item end
    if q.events then note_unsettled(q, 'u', item) end
  end
end
save_attempts(q, known)
if q.events then save_events(q, client) end
if (total_in_flight or '0') ~= '0' then
  --- @use notifications
  for _ = 1, #tokens do notify_reader(q, '') end -- readers may be blocked by the cap of the whole queue
end

-- All are to be delivered at once. One whose shard key has no room waits in the overflow.
if q.is_fair then
  --- @use window
  give_back_messages(q, back)
  close_accounts(q)
else
  --- @use redelivery
  arrange_messages(back)
  enqueue_messages(q, back)
end
return next_where
