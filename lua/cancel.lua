#!lua flags=allow-oom
-- cancel: remove a waiting or delayed message wherever it is; mark one that is in flight.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] returned: handles that wait for another delivery, by turn
-- KEYS[6] later: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10..] streams: the stream that the id names, unless it names the store
-- ARGV[1] message_id: as write returned it
-- ARGV[2] place: the last part of the id
-- ARGV[3] id: the rest of it
-- Reply: 'removed' | 'in flight' | 'unknown'
local meta, lens, ready, delayed, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, attempts, cancelled, moved = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local body_key = KEYS[10]
local message_id, place, id = ARGV[1], ARGV[2], ARGV[3]
--- @include lib/split_handle
--- @include lib/check
check({meta, lens, attempts}, {ready, delayed}, {body_key})
local now_at = redis.call('HGET', moved, message_id)
if now_at then place, id = split_handle(now_at) end
if place == 'd' then body_key = later end
local handle = place .. ':' .. id

local function leave(turn)
  if redis.call('HINCRBY', lens, turn, -1) <= 0 then redis.call('ZREM', ready, turn) end
end
-- Whether the stream's cursor is past the entry. Others' entries have numbers of their own: the time comes first.
local function is_past()
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  local at_ms, at_number = string.match(redis.call('HGET', lens, 'h' .. place) or '0-0', '^(%d+)%-(%d+)$')
  ms, at_ms = tonumber(ms), tonumber(at_ms)
  return ms < at_ms or ms == at_ms and tonumber(number) <= tonumber(at_number)
end
local turn = redis.call('ZSCORE', returned, handle)
-- An entry of the legacy stream is a message only once it was handed out; then something is known of it.
if place == 'l' and redis.call('HEXISTS', attempts, handle) == 0 then return 'unknown' end
if redis.call('SISMEMBER', cancelled, handle) == 1 then return 'in flight' end
if redis.call('XDEL', body_key, id) == 0 then return 'unknown' end
redis.call('HINCRBY', meta, 'cancelled', 1)
if turn then
  redis.call('ZREM', returned, handle)
  leave(turn)
elseif redis.call('ZREM', delayed, handle) == 0 then
  if place == 'd' or place == 'l' or is_past() then
    redis.call('SADD', cancelled, handle)
    if now_at then redis.call('HSET', attempts, handle, '0|| i' .. message_id) end -- see lib/forget_cancelled
    return 'in flight'
  end
  leave(place)
end
if now_at then redis.call('HDEL', moved, message_id) end
redis.call('HINCRBY', meta, 'gone', 1)
redis.call('HDEL', attempts, handle)
return 'removed'
