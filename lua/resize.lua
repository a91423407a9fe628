#!lua
-- resize: set how many streams writes go to. More are read from at once; fewer only when the higher ones are empty.
-- KEYS[1] meta: epoch, streams, wanted, reach of the stored assignment
-- KEYS[2..] streams: s0 up to the wanted number
-- ARGV[1] wanted: number of streams
-- Reply: {'OK', streams to read, streams to write} | {'NOQUEUE'} | {'ASSIGNED'} if hands would lose streams
local meta = KEYS[1]
local wanted = tonumber(ARGV[1])
--- @include lib/ensure_stream
local state = redis.call('HMGET', meta, 'streams', 'wanted', 'reach')
if not state[1] then return {'NOQUEUE'} end
if wanted < tonumber(state[3] or '0') then return {'ASSIGNED'} end
local streams = math.max(tonumber(state[1]), wanted)
if tonumber(state[2]) ~= wanted then
  for i = 2, 1 + wanted do ensure_stream(KEYS[i]) end
  redis.call('HSET', meta, 'streams', streams, 'wanted', wanted)
  redis.call('HINCRBY', meta, 'epoch', 1)
end
return {'OK', streams, wanted}
