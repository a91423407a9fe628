#!lua
-- pause: let reads pass over the whole queue until a time, or no more. The epoch moves only so that a late copy of this call changes
-- nothing.
-- KEYS[1] meta: until when it is paused
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] journal: what happened
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] until: the server's time in ms, '+ms' from now, '0' = it is paused no more
-- ARGV[4] readers: wake so many of them when it is paused no more, or is to go on by itself
-- ARGV[5] client: what the journal calls the caller
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
--- @use time, keys, epochs, journal, notifications, rules
local q = {meta = KEYS[1], notifications = KEYS[2], journal = KEYS[3], now = read_clock()}
local epoch, following, paused_until, readers = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
check_types({q.meta}, {}, {q.notifications, q.journal})
local answer = check_epoch(q, epoch, following)
if answer then return answer end

local waiting, asleep, journal_size = unpack(redis.call('HMGET', q.meta, 'waiting', 'asleep', 'journal')) -- at most 3: the fields
waiting, asleep, q.journal_size = tonumber(waiting), tonumber(asleep or '0'), tonumber(journal_size or '0')
q.waiting_until = math.max(waiting, asleep)
redis.call('HSET', q.meta, 'epoch', following)
if paused_until ~= '0' then
  if string.byte(paused_until) == 43 then paused_until = string.format('%.0f', q.now + paused_until) end -- 43 is '+'
  redis.call('HSET', q.meta, 'paused', paused_until, 'waiting', 0, 'asleep', q.waiting_until)
  redis.call('XTRIM', q.notifications, 'MAXLEN', 0)
else
  redis.call('HDEL', q.meta, 'paused', 'asleep')
  redis.call('HSET', q.meta, 'waiting', q.waiting_until)
end
save_mark(q)
-- Who is blocked learns by a look that it may go on, or when it may.
if tonumber(paused_until) < NEVER then
  for _ = 1, readers do notify_reader(q, '') end
end
if q.journal_size > 0 then
  local ends = tonumber(paused_until)
  begin_events(q)
  note_event(q, ends == 0 and 'f' or 'h', '', '', 0, ends > 0 and ends < NEVER and ends)
  save_events(q, ARGV[5])
end
return 'OK'
