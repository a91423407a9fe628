#!lua flags=no-writes
-- skip: go some entries on in a stream, without handing out any.
-- KEYS[1..] streams: the one in which to go on
-- ARGV[1] after: entry id to start after
-- ARGV[2] until: entry id that is not to be passed
-- ARGV[3] most: how many entries
-- Reply: {id of the last of them (or `after`), how many there were}
local stream, after, upto, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local entries = redis.call('XRANGE', stream, '(' .. after, upto, 'COUNT', most)
local last = entries[#entries]
return {last and last[1] or after, #entries}
