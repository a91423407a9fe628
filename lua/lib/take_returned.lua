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
take_returned = function(turn, most)
  check_types()
  for _, handle in ipairs(redis.call('ZRANGEBYSCORE', returned, turn, turn, 'LIMIT', 0, most)) do
    redis.call('ZREM', returned, handle)
    undelivered[turn], examined = undelivered[turn] - 1, examined + 1
    local place, id = split_handle(handle)
    local key = place == 'd' and later or keys[place]
    local body = redis.call('XRANGE', key, id, id)[1]
    local deliveries, hand, last_error = attempts_of(handle)
    if not body then
      vanished = vanished + 1
      drop(nil, handle, id, nil)
    elseif place ~= 'l' and lapsed(body[2]) then
      expired = expired + 1
      drop(key, handle, id, body[2])
    elseif hand == DOOMED then
      bury(handle, place, id, key, body[2], deliveries, last_error, last_error)
    elseif deliveries >= max_deliveries then
      bury(handle, place, id, key, body[2], deliveries, 'max deliveries', last_error)
    else
      hand_out(place, id, deliveries + 1, last_error, body[2])
    end
  end
end
