#!lua
-- weigh: give shard keys another weight. All of them are also kept as one text, "weight:length:key" of each. The epoch
-- moves only so that a late copy of this call changes nothing.
-- KEYS[1] meta: how many have a weight
-- KEYS[2] accounts: what each shard key holds, and its weight
-- KEYS[3] notifications: wakes blocked readers
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: so many may have one
-- ARGV[4..] changes: shard key, weight, ...; 1 is every shard key's and kept of none
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'FULL' when they would be too many: nothing is changed
--- @use time, keys, epochs, weights, accounts, rules
local q = {meta = KEYS[1], accounts = KEYS[2], notifications = KEYS[3], now = read_clock()}
local epoch, following, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
check_types({q.meta, q.accounts}, {}, {q.notifications})
local answer = check_epoch(q, epoch, following)
if answer then return answer end

local weights, keys = read_weights(q)
for i = 4, #ARGV, 2 do
  local key, weight = ARGV[i], ARGV[i + 1]
  if not weights[key] then keys[#keys + 1] = key end
  weights[key] = weight
end
local text, weighted = join_weights(weights, keys)
if weighted > most then return 'FULL' end
for i = 4, #ARGV, 2 do save_weight(q, ARGV[i], weights[ARGV[i]]) end
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
