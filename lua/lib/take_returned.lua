-- What was given back waits for its stream's turn. Its body may have gone, or its time, or its last delivery.
local function drop(key, handle, id, fields)
  if key then redis.call('XDEL', key, id) end
  redis.call('HDEL', attempts, handle)
  local origin = fields and string.match(attributes_of(fields), ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  gone = gone + 1
end
local bodies = {}
-- From the line of a turn, or straight from the overflow (then `turn` is nil). What nothing is known of goes to no
-- stream but that of its turn, should it be given back.
local function deliver(handle, turn, known)
  examined = examined + 1
  local place, id = split_handle(handle)
  local key = place == 'd' and later or keys[place]
  local body = place == 'd' and bodies[id] or redis.call('XRANGE', key, id, id)[1]
  local deliveries, hand, last_error = told_by(known)
  local before, fields = found, body and body[2]
  if not body then
    vanished = vanished + 1
    if log then log.note('z', id .. '-' .. place, '', deliveries) end
    drop(nil, handle, id, nil)
  elseif place ~= 'l' and lapsed(fields) then
    expired = expired + 1
    if log then log.body('x', place, id, fields, deliveries) end
    drop(key, handle, id, fields)
  elseif hand == DOOMED then
    bury(handle, place, id, key, fields, deliveries, last_error, last_error)
  elseif deliveries >= max_deliveries then
    bury(handle, place, id, key, fields, deliveries, 'max deliveries', last_error)
  else
    -- Of one that counts the token says where it may go; an ack of its first delivery looks for nothing else.
    local counts = fields[1] == 'K'
    if counts and deliveries == 0 and last_error == '' and hand ~= '' then redis.call('HDEL', attempts, handle) end
    if place == 'd' and hand == '' then hand = turn or '0' end
    hand_out(place, id, deliveries + 1, last_error, fields, hand)
  end
  if fair and body and fields[1] == 'K' then pass(fields[2], found > before, turn) end
end
local load_bodies, in_order
if count > 1 then
--- @include lib/bodies_of
end
local lined_up = {}
hand_out_line = function()
  if #lined_up == 0 then return end
  local line, handles = lined_up, {}
  lined_up, found = {}, found - #line
  for at, each in ipairs(line) do handles[at] = each[1] end
  local known = redis.call('HMGET', attempts, unpack(handles))
  if load_bodies then load_bodies(handles) end
  for at, each in ipairs(line) do deliver(each[1], each[2], known[at]) end
end
-- How far the line goes before the next new message: what got in line later comes after it.
local function head_of_line(turn)
  local entry = turn ~= LEGACY and redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '%-(%d+)$')) - 1 or PLACES - 1
end
take_returned = function(turn, most)
  check_types(turn)
  local first, upto = turn * PLACES, PLACES - 1
  local line = redis.call('ZRANGEBYSCORE', returned, first, first + upto, 'WITHSCORES', 'LIMIT', 0, most)
  if #line == 0 then return end
  if fair and undelivered[turn] > #line / 2 then upto = head_of_line(turn) end
  local handles = {}
  for at = 1, #line, 2 do
    if line[at + 1] - first <= upto then handles[#handles + 1] = line[at] end
  end
  if #handles > 0 then redis.call('ZREM', returned, unpack(handles)) end
  undelivered[turn] = undelivered[turn] - #handles
  for _, handle in ipairs(handles) do lined_up[#lined_up + 1] = {handle, turn} end
  found = found + #handles -- until it is looked at, all at once
end
