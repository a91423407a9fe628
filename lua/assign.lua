#!lua
-- assign: give shard keys their shards, or take them back, all or none. The epoch moves, so that every writer learns.
-- KEYS[1] meta: epoch, epoch and reach of the assignment
-- KEYS[2] assigned: shards by shard key
-- ARGV[1] epoch: for which the shards were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3] rule: "max_overlap|streams per shard", '' when no shard is left
-- ARGV[4] reach: one above the highest stream of all shards
-- ARGV[5] removed: how many shard keys lose theirs
-- ARGV[6..] rest: these shard keys, then shard key, shard, ... of those that get one
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
--- @use epochs
local q = {meta = KEYS[1], assigned = KEYS[2]}
local epoch, following, rule, reach = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local answer = check_epoch(q, epoch, following)
if answer then return answer end

redis.call('HSET', q.assigned, '', rule)
local first = 6 + tonumber(ARGV[5])
for i = 6, first - 1 do redis.call('HDEL', q.assigned, ARGV[i]) end
for i = first, #ARGV, 2 do redis.call('HSET', q.assigned, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', q.meta, 'epoch', following, 'assigned', following, 'reach', reach)
return 'OK'
