#!lua flags=allow-oom
-- complete: a bulk write is stored whole, so what was counted of it need not be remembered for as long as was said.
-- KEYS[1] bulk_offsets: offsets of bulk writes by end
-- ARGV[1] keep: for how many more ms at most
-- ARGV[2..] rest: the offsets of the write
-- Reply: 'OK'
--- @use time
local bulk_offsets, keep, now = KEYS[1], tonumber(ARGV[1]), read_clock()
for i = 2, #ARGV do redis.call('ZADD', bulk_offsets, 'XX', 'LT', now + keep, ARGV[i]) end
return 'OK'
