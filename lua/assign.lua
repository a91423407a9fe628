#!lua
-- assign: give shard keys their hands, or take them back, all or none. The epoch moves, so that every writer learns.
-- KEYS[1] meta: epoch, epoch and reach of the assignment
-- KEYS[2] assigned: hands by shard key
-- ARGV[1] epoch: for which the hands were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3] rule: "max_overlap|streams per hand", '' when no hand is left
-- ARGV[4] reach: one above the highest stream of all hands
-- ARGV[5] removed: how many shard keys lose theirs
-- ARGV[6..] rest: these shard keys, then shard key, hand, ... of those that get one
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
local meta, assigned = KEYS[1], KEYS[2]
--- @include lib/fence
local done = fenced(ARGV[1], ARGV[2])
if done then return done end
redis.call('HSET', assigned, '', ARGV[3])
local first = 6 + tonumber(ARGV[5])
for i = 6, first - 1 do redis.call('HDEL', assigned, ARGV[i]) end
for i = first, #ARGV, 2 do redis.call('HSET', assigned, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', meta, 'epoch', ARGV[2], 'assigned', ARGV[2], 'reach', ARGV[4])
return 'OK'
