#!lua flags=no-writes
-- recount: how many rows of some partitions of a bulk write are stored, as far as is remembered.
-- KEYS[1] meta: when the queue was created
-- KEYS[2] dedup: bulk offsets, and since when it remembers
-- ARGV[1] began: when the write began, in ms
-- ARGV[2..] rest: the fields of their bulk offsets, at most 1,000
-- Reply: {1 if bulk offsets may have been lost since then while messages stayed, else 0; now; for each field 'end|stored|batch|mark'
--        or nil}
--- @use time, producers
local q = {meta = KEYS[1], dedup = KEYS[2], now = read_clock()}
local began, fields = ARGV[1], {}
for i = 2, #ARGV do fields[i - 1] = ARGV[i] end
local offsets = redis.call('HMGET', q.dedup, unpack(fields)) -- at most 1,000: the fields
return {has_lost_offsets(q, began) and 1 or 0, q.now, offsets}
