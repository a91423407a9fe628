#!lua flags=no-writes
-- waiting: the shard keys of a page of what waits in one stream, and since when each message has been deliverable.
-- KEYS[1] lens: the stream's cursor
-- KEYS[2] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[3] bodies: bodies of messages that lie apart
-- KEYS[4] attempts: since when those wait that were given back
-- KEYS[5..] streams: the stream
-- ARGV[1] number: of the stream
-- ARGV[2] after: an entry id, '' to start
-- ARGV[3] returned: how many messages of the redelivery queue were seen, '' for all
-- ARGV[4] count: of messages
-- Reply: {after and returned to go on from, both '' at the end; {shard key, time in ms, ...}}
--- @use waiting
local q = {lens = KEYS[1], redelivery = KEYS[2], bodies = KEYS[3], attempts = KEYS[4], number = ARGV[1], found = {}}
local stream, after, returned, count = KEYS[5], ARGV[2], ARGV[3], tonumber(ARGV[4])
if returned ~= '' then
  returned = note_returned(q, stream, tonumber(returned), count)
else
  after = note_new(q, stream, after, count)
end
return {after, returned, q.found}
