#!lua
-- resize: set how many streams writes go to. More are read from at once; fewer only when the higher ones are empty.
-- KEYS[1] meta: epoch, streams, wanted, reach of the stored assignment
-- KEYS[2..] streams: s0 up to the wanted number
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] wanted: number of streams
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'ASSIGNED' if hands would lose streams
local meta = KEYS[1]
local wanted = tonumber(ARGV[3])
--- @include lib/ensure_stream
--- @include lib/fence
local done = fenced(ARGV[1], ARGV[2])
if done then return done end
local state = redis.call('HMGET', meta, 'streams', 'wanted', 'reach')
if wanted < tonumber(state[3] or '0') then return 'ASSIGNED' end
local streams = math.max(tonumber(state[1]), wanted)
if tonumber(state[2]) ~= wanted then
  for i = 2, 1 + wanted do ensure_stream(KEYS[i]) end
  redis.call('HSET', meta, 'streams', streams, 'wanted', wanted, 'epoch', ARGV[2])
end
return 'OK'
