#!lua
-- configure: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1] meta: settings
-- KEYS[2] accounts: what each shard key holds
-- KEYS[3] journal: what happened to the messages
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] shard_keys: shard keys of what is delayed
-- KEYS[6] dedup: what each dedup key and unique key stands for
-- KEYS[7] dedup_index: the same by end
-- KEYS[8] bodies: bodies of messages with unique keys
-- ARGV[1] epoch: for which the settings were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3] client: what the journal calls the caller
-- ARGV[4..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'BUSY' when `parents` changes while anything is accounted by the old rule
--        | 'KEYS' when `key_scope` changes while keys are remembered that were spelled by the old one
--- @use time, keys, epochs, accounts, journal, rules
local q = {
  meta = KEYS[1], accounts = KEYS[2], journal = KEYS[3], notifications = KEYS[4], shard_keys = KEYS[5],
  dedup = KEYS[6], dedup_index = KEYS[7], bodies = KEYS[8], now = read_clock(),
}
local READERS = 64
local epoch, following, client, changes = ARGV[1], ARGV[2], ARGV[3], {}
for at = 4, #ARGV, 2 do changes[ARGV[at]] = ARGV[at + 1] end
check_types({q.meta, q.accounts, q.shard_keys, q.dedup}, {q.dedup_index}, {q.journal, q.notifications, q.bodies})
local answer = check_epoch(q, epoch, following)
if answer then return answer end

local waiting, parents, max_in_flight, journal, limited, rate, scope = unpack( -- at most 7: the fields
  redis.call('HMGET', q.meta, 'waiting', 'parents', 'max_in_flight', 'journal', 'limited', 'rate', 'key_scope'))
load_sum(q, redis.call('HGET', q.accounts, 'sum'))
local split = changes.parents and changes.parents ~= (parents or '0')
if split and (q.active > 0 or redis.call('HLEN', q.shard_keys) > 1) then return 'BUSY' end
if changes.key_scope and changes.key_scope ~= (scope or 'queue') then
  --- @use producers
  forget_ended(q, q.dedup_index, 1000)
  if redis.call('ZCARD', q.dedup_index) > 1 then return 'KEYS' end -- the sentinel is one
end

-- What the journal held ends with it, and what happens until it is switched on again is missing: a number is left out.
-- Of a queue that had no event and no message yet nothing is.
local written, adopted, created, events = unpack( -- at most 4: the fields
  redis.call('HMGET', q.meta, 'n', 'adopted', 'created', 'events'))
local is_new = written + adopted == 0 and events == string.format('%.0f', created * 1000)
if changes.journal and (journal or '0') == '0' and not is_new then redis.call('HINCRBY', q.meta, 'events', 1) end
if changes.journal == '0' then redis.call('XTRIM', q.journal, 'MAXLEN', 0) end
-- While there is no cap and no limit nobody counts what is in flight, so what was counted before must count no more (see `forget`).
local cap_after, rate_after = changes.max_in_flight or max_in_flight, changes.rate or rate
local counted = (limited or '0') ~= '0' or (max_in_flight or '0') ~= '0' or (rate or '0') ~= '0'
local counts = (limited or '0') ~= '0' or (cap_after or '0') ~= '0' or (rate_after or '0') ~= '0'
if split or counted ~= counts then redis.call('HINCRBY', q.meta, 'cap_no', 1) end

for name, value in pairs(changes) do
  if value == '' then
    redis.call('HDEL', q.meta, name)
  else
    redis.call('HSET', q.meta, name, value)
  end
end
redis.call('HSET', q.meta, 'epoch', following)
save_mark(q)
q.journal_size = tonumber(changes.journal or journal or '') or 0
if q.journal_size > 0 then
  begin_events(q)
  note_event(q, 'o', '', '', 0)
  save_events(q, client)
end
if counted and not counts then redis.call('HSET', q.accounts, 'sum', q.active .. ' ' .. q.held) end
if q.held > 0 then
  --- @use window
  request_walk(q)
end
--- @use notifications
-- One blocked reader looks for what has room now and wakes others; the limits of the whole queue may have stopped many.
q.waiting_until = tonumber(waiting)
local is_total = changes.total_in_flight or changes.total_rate or changes.total_burst
for _ = 1, is_total and READERS or q.held > 0 and 1 or 0 do notify_reader(q, '') end
return 'OK'
