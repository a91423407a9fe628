#!lua
-- assign: give shard keys their hands, or take them back, all or none. The epoch moves, so that every writer learns.
-- KEYS[1] meta: epoch, epoch and reach of the assignment
-- KEYS[2] assigned: hands by shard key
-- ARGV[1] epoch: for which the hands were chosen
-- ARGV[2] rule: "max_overlap|streams per hand", '' when no hand is left
-- ARGV[3] reach: one above the highest stream of all hands
-- ARGV[4] removed: how many shard keys lose theirs
-- ARGV[5..] rest: these shard keys, then shard key, hand, ... of those that get one
-- Reply: 'OK' | 'EPOCH'
local meta, assigned = KEYS[1], KEYS[2]
if redis.call('HGET', meta, 'epoch') ~= ARGV[1] then return 'EPOCH' end
redis.call('HSET', assigned, '', ARGV[2])
local first = 5 + tonumber(ARGV[4])
for i = 5, first - 1 do redis.call('HDEL', assigned, ARGV[i]) end
for i = first, #ARGV, 2 do redis.call('HSET', assigned, ARGV[i], ARGV[i + 1]) end
local epoch = string.format('%.0f', redis.call('HINCRBY', meta, 'epoch', 1))
redis.call('HSET', meta, 'assigned', epoch, 'reach', ARGV[3])
return 'OK'
