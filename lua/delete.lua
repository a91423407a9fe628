#!lua flags=allow-oom
-- delete: remove a queue with all of its keys, unless it holds other messages than the caller expects.
-- KEYS[1] meta: counters
-- KEYS[2] dead: dead letters
-- KEYS[3..] rest: all other keys of the queue
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] expected: how many messages it holds, dead letters included; '' = however many
-- Reply: {'OK' | 'HELD', how many it holds} | {'NOQUEUE', 0} | {'EPOCH', 0}
local meta, dead = KEYS[1], KEYS[2]
local epoch, expected = ARGV[1], tonumber(ARGV[2])
local present, written, adopted, gone = unpack(redis.call('HMGET', meta, 'epoch', 'n', 'adopted', 'gone')) -- at most 4: the fields
if not present then return {'NOQUEUE', 0} end
if present ~= epoch then return {'EPOCH', 0} end

local held = math.max(0, written + adopted - gone) + redis.call('XLEN', dead)
if expected and held ~= expected then return {'HELD', held} end

local keys = KEYS
for _, key in ipairs(keys) do redis.call('UNLINK', key) end
return {'OK', held}
