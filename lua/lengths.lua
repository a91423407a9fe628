#!lua flags=no-writes
-- lengths: the undelivered messages of each of some streams, for a queue that has more than `stats` tells of at once.
-- KEYS[1] lens: undelivered per stream
-- ARGV[1] first: the first stream
-- ARGV[2] count: of streams
-- Reply: {undelivered of the first, of the next, ...}
local lens = KEYS[1]
--- @include lib/lengths
return lengths_of_streams(tonumber(ARGV[1]), tonumber(ARGV[2]))
