-- Hand out from one stream: first what was given back, then what is new, in order.
local rows, tokens = {}, {}
local undelivered, cursor, counters = {}, {}, {gone = 0, expired = 0, vanished = 0, adopted = 0}
local any_returned = redis.call('ZCARD', returned) > 1
local examined = 0
local function load_lens(turns)
  local fields, missing = {}, {}
  for _, turn in ipairs(turns) do
    if not undelivered[turn] then
      missing[#missing + 1] = turn
      fields[#fields + 1], fields[#fields + 2] = turn, 'h' .. turn
    end
  end
  if #missing == 0 then return end
  local values = redis.call('HMGET', lens, unpack(fields))
  for i, turn in ipairs(missing) do
    undelivered[turn], cursor[turn] = tonumber(values[2 * i - 1] or '0'), values[2 * i] or '0-0'
  end
end
local function hand_out(place, id, deliveries, last_error, fields)
  local head = place .. ':' .. id .. ':' .. deliveries
  tokens[#tokens + 1] = head .. ':' .. holder
  rows[#rows + 1] = {head, last_error, fields}
end
local function lapsed(place, fields)
  local written = place ~= 'l' and fields[4] or ''
  local ends = #written > 1 and string.match(written, ' x(%d+)')
  return ends and tonumber(ends) <= now
end
local function drop(key, handle, id, fields, reason)
  check_types()
  if key then redis.call('XDEL', key, id) end
  redis.call('HDEL', attempts, handle)
  local origin = fields and string.match(fields[4] or '', ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  counters.gone, counters[reason] = counters.gone + 1, counters[reason] + 1
end
local function take_returned(turn, most)
  check_types()
  for _, handle in ipairs(redis.call('ZRANGEBYSCORE', returned, turn, turn, 'LIMIT', 0, most)) do
    redis.call('ZREM', returned, handle)
    undelivered[turn], examined = undelivered[turn] - 1, examined + 1
    local place, id = split_handle(handle)
    local key = place == 'd' and later or keys[place]
    local body = redis.call('XRANGE', key, id, id)[1]
    local deliveries, hand, last_error = attempts_of(handle)
    if not body then
      drop(nil, handle, id, nil, 'vanished')
    elseif lapsed(place, body[2]) then
      drop(key, handle, id, body[2], 'expired')
    elseif hand == DOOMED then
      bury(handle, place, id, key, body[2], deliveries, last_error, last_error)
    elseif deliveries >= max_deliveries then
      bury(handle, place, id, key, body[2], deliveries, 'max deliveries', last_error)
    else
      hand_out(place, id, deliveries + 1, last_error, body[2])
    end
  end
end
local function take_new(turn, most)
  local entries = redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', most)
  examined = examined + #entries
  undelivered[turn] = undelivered[turn] - #entries
  for _, entry in ipairs(entries) do
    cursor[turn] = entry[1]
    if lapsed(turn, entry[2]) then
      drop(keys[turn], turn .. ':' .. entry[1], entry[1], entry[2], 'expired')
    else
      hand_out(turn, entry[1], '1', '', entry[2])
    end
  end
  if #entries < most then
    -- Nothing new is left, so what the count still says must be given-back messages; the rest was deleted by others.
    local left = any_returned and redis.call('ZCOUNT', returned, turn, turn) or 0
    counters.gone = counters.gone + undelivered[turn] - left
    counters.vanished = counters.vanished + undelivered[turn] - left
    undelivered[turn] = left
  end
end
--- @include lib/take_legacy
local function take(turn, most)
  load_lens({turn})
  local wanted = #tokens + most
  if any_returned then take_returned(turn, most) end
  if turn == tostring(LEGACY) then
    check_types()
    take_legacy(wanted - #tokens)
  elseif #tokens < wanted then
    take_new(turn, wanted - #tokens)
  end
end
