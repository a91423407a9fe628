#!lua flags=no-writes
-- limits: a page of the shard keys that have limits of their own, and whether the whole queue is paused.
-- KEYS[1] meta: until when the queue is paused
-- KEYS[2] limits: the limits of each shard key that has any
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many
-- Reply: {now} when there is no such queue | {now, the time in ms until which the queue is paused or '', cursor to go on from ('0' at the end),
--         {shard key, "cap rate burst until", ...}}
--- @use time
local meta, limits, cursor, count = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local exists, paused = unpack(redis.call('HMGET', meta, 'epoch', 'paused')) -- at most 2: the fields
if not exists then return {read_clock()} end
local page = redis.call('HSCAN', limits, cursor, 'COUNT', count)
return {read_clock(), paused or '', page[1], page[2]}
