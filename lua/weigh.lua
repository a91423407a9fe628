#!lua
-- weigh: give shard keys another weight. All of them are also kept as one text, "weight:length:key" of each. The epoch
-- moves only so that a late copy of this call changes nothing.
-- KEYS[1] meta: how many have a weight
-- KEYS[2] accounts: what each shard key holds, and its weight
-- KEYS[3] notifications: wakes blocked readers
-- KEYS[4] journal: what happened
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: so many may have one
-- ARGV[4] client: what the journal calls the caller
-- ARGV[5..] changes: shard key, weight, ...; 1 is every shard key's and kept of none
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'FULL' when they would be too many: nothing is changed
--- @use time, keys, epochs, weights, accounts, journal, rules
local q = {meta = KEYS[1], accounts = KEYS[2], notifications = KEYS[3], journal = KEYS[4], now = read_clock()}
local epoch, following, most, client = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
check_types({q.meta, q.accounts}, {}, {q.notifications, q.journal})
local answer = check_epoch(q, epoch, following)
if answer then return answer end

local weights, keys = read_weights(q)
for i = 5, #ARGV, 2 do
  local key, weight = ARGV[i], ARGV[i + 1]
  if not weights[key] then keys[#keys + 1] = key end
  weights[key] = weight
end
local text, weighted = join_weights(weights, keys)
if weighted > most then return 'FULL' end
q.journal_size = tonumber(redis.call('HGET', q.meta, 'journal') or '0')
if q.journal_size > 0 then begin_events(q) end
for i = 5, #ARGV, 2 do
  save_weight(q, ARGV[i], weights[ARGV[i]])
  if q.events then note_event(q, 'j', '', ARGV[i], 0) end
end
if q.events then save_events(q, client) end
redis.call('HSET', q.accounts, 'weights', text)
redis.call('HSET', q.meta, 'weighted', weighted, 'epoch', following)
save_mark(q)

load_sum(q, redis.call('HGET', q.accounts, 'sum'))
if q.held > 0 then
  --- @use window, notifications
  q.waiting_until = tonumber(redis.call('HGET', q.meta, 'waiting') or '0')
  request_walk(q)
  notify_reader(q, '')
end
return 'OK'
