#!lua flags=allow-oom
-- shrink: stop reading the highest streams, one after the other, as long as the highest is empty.
-- Empty means no entry at all: acked messages are deleted, so what is in flight still keeps its stream.
-- KEYS[1] meta: epoch, streams, wanted
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3..] streams: from s<wanted> up to the highest that is read
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- Reply: number of streams that are read now, -1 when the epoch is another
--- @use streams
local q = {meta = KEYS[1], lens = KEYS[2]}
local epoch, following = ARGV[1], ARGV[2]
local present, streams, wanted = unpack(redis.call('HMGET', q.meta, 'epoch', 'streams', 'wanted')) -- at most 3: the fields
if present ~= epoch then return -1 end
for i = 3, #KEYS do redis.call('XLEN', KEYS[i]) end -- a key of another type must be found before the first effect

local left = tonumber(streams)
while left > tonumber(wanted) do
  local top, key = left - 1, KEYS[2 + left - wanted]
  if not is_empty(q, top, key) then break end
  remove_stream(q, top, key)
  left = top
end
if left < tonumber(streams) then redis.call('HSET', q.meta, 'streams', left, 'epoch', following) end
return left
