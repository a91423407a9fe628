#!lua flags=allow-oom
-- shrink: stop reading the highest streams, one after the other, as long as the highest is empty.
-- Empty means no entry at all: acked messages are deleted, so what is in flight still keeps its stream.
-- KEYS[1] meta: epoch, streams, wanted
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3..] streams: from s<wanted> up to the highest that is read
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- Reply: number of streams that are read now, -1 when the epoch is another
local meta, lens = KEYS[1], KEYS[2]
local state = redis.call('HMGET', meta, 'epoch', 'streams', 'wanted')
if state[1] ~= ARGV[1] then return -1 end
local streams, wanted = tonumber(state[2]), tonumber(state[3])
local before = streams
for i = 3, #KEYS do redis.call('XLEN', KEYS[i]) end -- a key of another type must be found before the first effect
while streams > wanted do
  local top = streams - 1
  local key = KEYS[3 + top - wanted]
  if redis.call('XLEN', key) > 0 or tonumber(redis.call('HGET', lens, top) or '0') > 0 then break end
  redis.call('DEL', key)
  redis.call('HDEL', lens, top, 'h' .. top)
  if redis.call('HDEL', lens, 'o' .. top) == 1 then redis.call('HINCRBY', meta, 'owed', -1) end
  streams = top
end
if streams < before then
  redis.call('HSET', meta, 'streams', streams, 'epoch', ARGV[2])
end
return streams
