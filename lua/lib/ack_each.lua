-- Some of these leases are lost, or some messages were cancelled meanwhile: one after the other.
--- @include lib/split_token
--- @include lib/attributes
--- @include lib/forget_cancelled
local function forget(place, id, handle)
  local body = redis.call('XRANGE', keys[place], id, id)[1]
  local origin = body and string.match(attributes_of(body[2]), ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  redis.call('XDEL', keys[place], id)
  redis.call('HDEL', attempts, handle)
end
local letters = {}
for i = 1, count do
  local token = ARGV[4 + i]
  local place, id, deliveries = split_token(token)
  local handle = place .. ':' .. id
  if not is_live(deadlines[i]) then
    -- A repeated ack whose message is gone was done by the first try (or by its next holder: done is done).
    letters[i] = repeated and #redis.call('XRANGE', keys[place], id, id) == 0 and 'o' or 'l'
  else
    redis.call('ZREM', leases, token)
    if redis.call('SREM', cancelled, handle) == 1 then
      letters[i] = 'c'
      forget_cancelled(handle)
    else
      letters[i] = 'o'
      redis.call('HINCRBY', meta, 'gone', 1)
      forget(place, id, handle)
      redis.call('HINCRBY', meta, 'acked', 1)
      if log then log.settled('a', i, place, id, deliveries) end
    end
  end
end
