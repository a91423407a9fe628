-- What was given back waits for its stream's turn. Its body may have gone, or its time, or its last delivery.
local function drop(key, handle, id, fields)
  if key then redis.call('XDEL', key, id) end
  redis.call('HDEL', attempts, handle)
  local origin = fields and string.match(attributes_of(fields), ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  gone = gone + 1
end
local bodies = {}
-- From the line of a turn, or straight from the overflow (then `turn` is nil). Of what nothing is known, `streams_told` is
-- where it may go should it be given back.
local function deliver(handle, turn, known, streams_told)
  examined = examined + 1
  local place, id = split_handle(handle)
  local key = place == 'd' and later or keys[place]
  local body = bodies[place == 'd' and id or handle] or redis.call('XRANGE', key, id, id)[1]
  local deliveries, hand, last_error, rejected, since = told_by(known)
  local before, fields = found, body and body[2]
  if not body then
    vanished = vanished + 1
    if log then log.note('z', id .. '-' .. place, '', deliveries) end
    drop(nil, handle, id, nil)
  elseif place ~= 'l' and #fields > 4 and lapsed(fields) then
    expired = expired + 1
    if log then log.body('x', place, id, fields, deliveries) end
    drop(key, handle, id, fields)
  elseif rejected or deliveries > 0 and deliveries >= limits().deliveries then
    bury({
      handle = handle, place = place, id = id, key = key, fields = fields, count = deliveries, hand = hand,
      last_error = last_error, rejected = rejected,
    }, 'b', limits().dead)
  else
    -- Of one that counts the token says where it may go; an ack of its first delivery looks for nothing else.
    local counts = fields[1] == 'K'
    if counts and deliveries == 0 and last_error == '' and hand ~= '' then redis.call('HDEL', attempts, handle) end
    if place == 'd' and hand == '' then hand = streams_told end
    hand_out(place, id, deliveries + 1, last_error, fields, hand, since)
  end
  if fair and body and fields[1] == 'K' then pass(fields[2], found > before, turn) end
end
local load_bodies
if count > 1 then
--- @include lib/bodies_of
end
local lined_up, handles, leaving, lines = {}, {}, {}, {}
--- @include lib/look_ahead
leave_line = function()
  if #leaving > 0 then redis.call('ZREM', returned, unpack(leaving)) end -- at most 1,000: a read
  leaving = {}
end
-- The notes on these; without asking for those that this call has made of all of them.
local function notes_on(some)
  local texts = {}
  for at, handle in ipairs(just_noted and some or {}) do
    local text = just_noted[handle]
    if not text then break end
    texts[at], just_noted[handle] = text, nil
  end
  return #texts == #some and texts or redis.call('HMGET', attempts, unpack(some)) -- at most 1,000: a read
end
hand_out_line = function()
  if #lined_up == 0 then return end
  leave_line()
  local turns, found_there = lined_up, handles
  lined_up, handles, lines, found = {}, {}, {}, found - #turns
  local known = notes_on(found_there)
  if load_bodies then load_bodies(found_there) end
  for at, handle in ipairs(found_there) do deliver(handle, turns[at], known[at], turns[at]) end
end
-- How far the line goes before the next new message: what got in line later comes after it.
local function head_of_line(turn)
  local entry = turn ~= LEGACY and redis.call('XRANGE', keys[turn], '(' .. cursor[turn], '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '%-(%d+)$')) - 1 or PLACES - 1
end
take_returned = function(turn, most)
  check_types(turn)
  local first, upto = turn * PLACES, PLACES - 1
  local line = lines[first] or redis.call('ZRANGEBYSCORE', returned, first, first + upto, 'WITHSCORES', 'LIMIT', 0, most)
  local size = math.min(#line / 2, most)
  if size == 0 then return end
  local mixed, before = fair and undelivered[turn] > size, #handles
  if mixed then upto = head_of_line(turn) end
  for at = 1, 2 * size, 2 do
    if mixed and line[at + 1] - first > upto then break end
    handles[#handles + 1], leaving[#leaving + 1], lined_up[#lined_up + 1] = line[at], line[at], turn
  end
  local taken = #handles - before
  undelivered[turn] = undelivered[turn] - taken
  found = found + taken -- until it is looked at, all at once
end
