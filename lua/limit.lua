#!lua
-- limit: give shard keys (or parents) limits of their own. What has room now comes out of their overflows. The epoch moves only so
-- that a late copy of this call changes nothing.
-- KEYS[1] meta: how many have limits, the mark of the queue's rules
-- KEYS[2] accounts: what each shard key holds, and its limits
-- KEYS[3] limits: the limits of all that have any
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] lens: undelivered per stream
-- KEYS[6] ready: streams with something undelivered
-- KEYS[7] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[8] overflow: handles that wait for room
-- KEYS[9] leases: tokens by deadline in ms
-- KEYS[10] due: when to look at limited shard keys again
-- KEYS[11] journal: what happened
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: so many may have limits of their own
-- ARGV[4] client: what the journal calls the caller
-- ARGV[5..] changes: shard key (each once), cap, rate, burst, paused until (ms; '+ms' from now), ...; '' leaves a limit as it is, '-' is what
--            the queue says
-- Reply: {'OK' | 'FORGET' if what was counted in flight before counts no more, how many of the shard keys this call did} | 'NOQUEUE' |
--        'EPOCH' | 'PLAIN' where no message counts | 'CHILD' where the queue has parents, and a key is a child | 'FULL' when they
--        would be too many: then nothing is changed
--- @use time, keys, epochs, accounts, journal, limits, named_limits, window, notifications
local q = {
  meta = KEYS[1], accounts = KEYS[2], limits = KEYS[3], notifications = KEYS[4], lens = KEYS[5], ready = KEYS[6], redelivery = KEYS[7],
  overflow = KEYS[8], leases = KEYS[9], due = KEYS[10], journal = KEYS[11], now = read_clock(), lengths = {},
}
local epoch, following, most, client = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
check_types({q.meta, q.accounts, q.limits, q.lens}, {q.ready, q.redelivery, q.overflow, q.leases, q.due}, {q.notifications, q.journal})
local answer = check_epoch(q, epoch, following)
if answer then return answer end
local fair, parents, waiting, streams, written, journal_size = unpack( -- at most 6: the fields
  redis.call('HMGET', q.meta, 'fair', 'parents', 'waiting', 'streams', 'n', 'journal'))
if fair ~= '1' then return 'PLAIN' end
q.waiting_until, q.stream_count, q.positions_from = tonumber(waiting), tonumber(streams), tonumber(written)
q.journal_size = tonumber(journal_size or '0')

q.has_parents = parents == '1'
local names, changes = {}, {}
for at = 5, #ARGV, 5 do
  local name = ARGV[at]
  if account_name(q, name) ~= name then return 'CHILD' end
  names[#names + 1] = name
  changes[name] = {ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]}
end
local done = find_countable(q, names)
for at = #names, done + 1, -1 do names[at] = nil end
local texts, limited = join_limits(q, names, changes)
if limited > most and limited > redis.call('HLEN', q.limits) - 1 then return 'FULL' end
local is_switched = save_named(q, names, texts, limited)
redis.call('HSET', q.meta, 'epoch', following)
if q.journal_size > 0 then
  begin_events(q)
  for at, name in ipairs(names) do
    local pause, stored = changes[name][4], texts[at]
    local ends = pause ~= '' and pause ~= '0' and stored and tonumber(string.match(stored, '(%d+)$'))
    local kind = pause == '' and 'i' or pause == '0' and 'f' or 'h'
    note_event(q, kind, '', name, 0, ends and ends < NEVER and ends)
  end
  save_events(q, client)
end

prepare_admission(q)
begin_limits(q)
begin_looks(q)
if q.has_limits then
  load_accounts(q, names)
  recount_flights(q, names)
  close_accounts(q)
elseif redis.call('ZCARD', q.overflow) > 1 then
  -- No limits are left, and nobody counts in flight any more: the reads that come look at every shard key.
  load_sum(q, redis.call('HGET', q.accounts, 'sum'))
  if not q.counts_flight then redis.call('HSET', q.accounts, 'sum', q.active .. ' ' .. q.held) end
  request_walk(q)
end
notify_reader(q, '')
return {is_switched and 'FORGET' or 'OK', done}
