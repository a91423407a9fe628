-- What was given back waits for its stream's turn. Its body may have gone, or its time, or its last delivery.
local function drop(key, handle, id, fields)
  if key then redis.call('XDEL', key, id) end
  redis.call('HDEL', attempts, handle)
  local origin = fields and string.match(attributes_of(fields), ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  gone = gone + 1
end
local function hand_out(place, id, deliveries, last_error, fields)
  local token = place .. ':' .. id .. ':' .. deliveries
  again[#again + 1] = {token, last_error, fields}
  lease(token .. ':' .. holder)
end
-- `leaves`: it stood in line, and so counted as one of its shard key's in the shared streams.
local function deliver(handle, leaves)
  examined = examined + 1
  local place, id = split_handle(handle)
  local key = place == 'd' and later or keys[place]
  local body = redis.call('XRANGE', key, id, id)[1]
  local deliveries, hand, last_error = attempts_of(handle)
  local counts = fair and body and body[2][1] == 'K'
  if counts and leaves then leave(body[2]) end
  if not body then
    vanished = vanished + 1
    if log then log.note('z', id .. '-' .. place, '', deliveries) end
    drop(nil, handle, id, nil)
  elseif place ~= 'l' and lapsed(body[2]) then
    expired = expired + 1
    if log then log.body('x', place, id, body[2], deliveries) end
    drop(key, handle, id, body[2])
  elseif hand == DOOMED then
    bury(handle, place, id, key, body[2], deliveries, last_error, last_error)
  elseif deliveries >= max_deliveries then
    bury(handle, place, id, key, body[2], deliveries, 'max deliveries', last_error)
  else
    -- Given back uncounted: an ack of a first delivery to a stream's own message looks for nothing else.
    if counts and deliveries == 0 and place ~= 'd' then redis.call('HDEL', attempts, handle) end
    hand_out(place, id, deliveries + 1, last_error, body[2])
    if counts then board(handle, body[2]) end
  end
end
take_returned = function(turn, upto, most)
  check_types()
  local first = turn * PLACES
  for _, handle in ipairs(redis.call('ZRANGEBYSCORE', returned, first, first + upto, 'LIMIT', 0, most)) do
    redis.call('ZREM', returned, handle)
    undelivered[turn] = undelivered[turn] - 1
    deliver(handle, true)
  end
end
