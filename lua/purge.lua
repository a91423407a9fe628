#!lua flags=allow-oom
-- purge: remove up to `most` undelivered and delayed messages; what is in flight stays.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] returned: handles that wait for another delivery, by turn
-- KEYS[6] later: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] moved: where redriven messages lie now
-- KEYS[9..] streams: the declared ones
-- ARGV[1] most: in this call
-- ARGV[2] numbers: stream numbers of the declared streams, "3,17,l"
-- Reply: {how many were removed, 1 when there may be more}
local meta, lens, ready, delayed, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, attempts, moved = KEYS[6], KEYS[7], KEYS[8]
local most, removed, vanished = tonumber(ARGV[1]), 0, 0
--- @include lib/stream_keys
--- @include lib/split_handle
--- @include lib/attributes
--- @include lib/check
check({meta, lens, attempts, moved}, {ready, delayed, returned}, {later})
for i = 9, #KEYS do redis.call('XLEN', KEYS[i]) end
local keys = stream_keys(ARGV[2], KEYS, 9)
keys['d'] = later
local function remove(handle)
  local place, id = split_handle(handle)
  local body = redis.call('XRANGE', keys[place], id, id)[1]
  local origin = body and string.match(attributes_of(body[2]), ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  redis.call('XDEL', keys[place], id)
  redis.call('HDEL', attempts, handle)
  removed = removed + 1
end
local function remove_returned(turn)
  local handles = redis.call('ZRANGEBYSCORE', returned, turn, turn, 'LIMIT', 0, most - removed)
  for _, handle in ipairs(handles) do
    redis.call('ZREM', returned, handle)
    remove(handle)
  end
  return #handles
end
-- Of what was never delivered nothing is known beside its entry.
local function remove_new(turn)
  local cursor, ids = redis.call('HGET', lens, 'h' .. turn) or '0-0', {}
  local entries = redis.call('XRANGE', keys[turn], '(' .. cursor, '+', 'COUNT', most - removed)
  for at, entry in ipairs(entries) do ids[at] = entry[1] end
  if #ids > 0 then
    redis.call('XDEL', keys[turn], unpack(ids))
    redis.call('HSET', lens, 'h' .. turn, ids[#ids])
  end
  removed = removed + #ids
  return #ids
end
-- When all is removed, the count may say something else: others put entries there, or deleted some.
local function purge(turn)
  local gone = remove_returned(turn)
  if turn ~= LEGACY and removed < most then gone = gone + remove_new(turn) end
  local left = redis.call('HGET', lens, turn) - gone
  local real = removed < most and 0 or math.max(1, left)
  if real == 0 then redis.call('ZREM', ready, turn) end
  redis.call('HSET', lens, turn, real)
  vanished = vanished + left - real
end
local more = false
for _, turn in ipairs(redis.call('ZRANGEBYSCORE', ready, 0, '+inf', 'LIMIT', 0, most)) do
  if keys[turn] and removed < most then
    more = true
    purge(turn)
  end
end
if removed < most then
  local handles = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(9000000000000000', 'LIMIT', 0, most - removed)
  for _, handle in ipairs(handles) do
    local place = split_handle(handle)
    if keys[place] then
      redis.call('ZREM', delayed, handle)
      remove(handle)
    end
  end
end
redis.call('HINCRBY', meta, 'gone', removed + vanished)
redis.call('HINCRBY', meta, 'purged', removed)
redis.call('HINCRBY', meta, 'vanished', vanished)
return {removed, (more or removed > 0) and 1 or 0}
