#!lua
-- release: forget dedup keys of a gateway's clients, who will never write with them again.
-- KEYS[1] dedup: what each dedup key stands for
-- KEYS[2] dedup_index: dedup keys by the end of their memory
-- ARGV[1..] rest: the dedup keys, at most 1,000
-- Reply: how many of them were remembered
local dedup, dedup_index, fields = KEYS[1], KEYS[2], {}
for i = 1, #ARGV do fields[i] = 'g:' .. ARGV[i] end
redis.call('ZCARD', dedup_index) -- fails on a key of another type, before the first effect
local known = redis.call('HDEL', dedup, unpack(fields)) -- at most 1,000
redis.call('ZREM', dedup_index, unpack(fields)) -- at most 1,000
return known
