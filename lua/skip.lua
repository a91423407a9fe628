#!lua flags=no-writes
-- skip: go some entries on in a stream, without handing out any.
-- KEYS[1..] streams: the one in which to go on
-- ARGV[1] after: entry id to start after
-- ARGV[2] until: entry id that is not to be passed
-- ARGV[3] most: how many entries
-- Reply: {id of the last of them (or `after`), how many there were}
local stream = KEYS[1]
local rows = redis.call('XRANGE', stream, '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#rows > 0 and rows[#rows][1] or ARGV[1], #rows}
