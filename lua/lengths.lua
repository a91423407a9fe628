#!lua flags=no-writes
-- lengths: the undelivered messages of each of some streams, for a queue that has more than `stats` tells of at once.
-- KEYS[1] lens: undelivered per stream
-- ARGV[1] first: the first stream
-- ARGV[2] count: of streams
-- Reply: {undelivered of the first, of the next, ...}
--- @use streams
local q = {lens = KEYS[1]}
return read_lengths(q, tonumber(ARGV[1]), tonumber(ARGV[2]))
