#!lua flags=allow-oom
-- purge: remove up to `most` undelivered messages per stream and as many delayed ones; what is in flight stays.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] returned: handles that wait for another delivery, by turn
-- KEYS[6] later: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] moved: where redriven messages lie now
-- KEYS[9..] streams: the declared ones
-- ARGV[1] most: per stream
-- ARGV[2] numbers: stream numbers of the declared streams, "3,17,l"
-- Reply: how many were removed; call again until 0
local meta, lens, ready, delayed, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, attempts, moved = KEYS[6], KEYS[7], KEYS[8]
local most, removed = tonumber(ARGV[1]), 0
--- @include lib/stream_keys
--- @include lib/split_handle
--- @include lib/attributes
--- @include lib/check
check({meta, lens, attempts, moved}, {ready, delayed, returned}, {later})
for i = 9, #KEYS do redis.call('XLEN', KEYS[i]) end
local keys, order = stream_keys(ARGV[2], KEYS, 9)
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
for _, number in ipairs(order) do
  local turn = number == 'l' and LEGACY or number
  local gone = 0
  for _, handle in ipairs(redis.call('ZRANGEBYSCORE', returned, turn, turn, 'LIMIT', 0, most)) do
    redis.call('ZREM', returned, handle)
    remove(handle)
    gone = gone + 1
  end
  if number ~= 'l' then
    local cursor = redis.call('HGET', lens, 'h' .. turn) or '0-0'
    for _, entry in ipairs(redis.call('XRANGE', keys[number], '(' .. cursor, '+', 'COUNT', most)) do
      remove(number .. ':' .. entry[1])
      gone, cursor = gone + 1, entry[1]
    end
    redis.call('HSET', lens, 'h' .. turn, cursor)
  end
  if gone > 0 and redis.call('HINCRBY', lens, turn, -gone) <= 0 then redis.call('ZREM', ready, turn) end
end
for _, handle in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', '(9000000000000000', 'LIMIT', 0, most)) do
  local place = split_handle(handle)
  if keys[place] then
    redis.call('ZREM', delayed, handle)
    remove(handle)
  end
end
redis.call('HINCRBY', meta, 'gone', removed)
redis.call('HINCRBY', meta, 'purged', removed)
return removed
