#!lua
-- resize: set how many streams writes go to. More are read from at once; fewer only when the higher ones are empty.
-- KEYS[1] meta: epoch, streams, wanted, reach of the stored assignment
-- KEYS[2..] streams: s0 up to the wanted number
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] wanted: number of streams
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'ASSIGNED' if shards would lose streams
--- @use epochs, streams
local q = {meta = KEYS[1]}
local epoch, following, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local answer = check_epoch(q, epoch, following)
if answer then return answer end

local streams, written_to, reach = unpack(redis.call('HMGET', q.meta, 'streams', 'wanted', 'reach')) -- at most 3: the fields
if wanted < tonumber(reach or '0') then return 'ASSIGNED' end
if tonumber(written_to) ~= wanted then
  for i = 2, 1 + wanted do create_stream(KEYS[i]) end
  redis.call('HSET', q.meta, 'streams', math.max(tonumber(streams), wanted), 'wanted', wanted, 'epoch', following)
end
return 'OK'
