-- Since when the message has been deliverable that waits longest, in ms; -1 when none waits. What was given back counts from
-- then, what was delayed from when it was due. So many places at most are looked at in each of the ways in which messages
-- wait: beyond, a message that waits in another place may have waited longer.
local PLACES_SEEN = 100
local oldest = -1
local function older(ms)
  if ms and (oldest < 0 or ms < oldest) then oldest = math.max(0, ms) end
end
-- What is due, or whose lease has ended, and was not taken back yet, in bucket after bucket.
local function look_at_index(index, kind, upto, later)
  local function look(start)
    local first = redis.call('ZRANGEBYSCORE', index, start > 0 and string.format('%.0f', start) or '-inf',
      string.format('%.0f', start + upto), 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if first then older(first - start + later) end
  end
  look(0)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', upto, 'LIMIT', 0, PLACES_SEEN)) do
    if string.sub(member, 1, 1) == kind then look(string.sub(member, 2) * SPAN) end
  end
end
-- The lines of what was given back: the first ones of each stream.
local function look_at_lines()
  local handles, from = {}, 0
  for _ = 1, PLACES_SEEN do
    local line = redis.call('ZRANGEBYSCORE', returned, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 4)
    if #line == 0 then break end
    local turn = math.floor(line[2] / PLACES)
    from = (turn + 1) * PLACES
    for at = 1, #line, 2 do
      if tonumber(line[at + 1]) < from then handles[#handles + 1] = line[at] end
    end
  end
  local known = #handles > 0 and redis.call('HMGET', attempts, unpack(handles)) or {} -- at most 4 * PLACES_SEEN
  for at, handle in ipairs(handles) do
    local since = known[at] and string.match(known[at], '^%d+@(%d+)|')
    older(tonumber(since or string.match(handle, ':(%d+)%-')))
  end
end
-- The first in each run of the overflow is the oldest of its shard key.
local function look_at_overflow()
  local from = '('
  for _ = 1, PLACES_SEEN do
    local member = redis.call('ZRANGEBYLEX', overflow, from, '(t', 'LIMIT', 0, 1)[1]
    if not member then break end
    local size, rest = string.match(member, '^(%d+):(.*)$')
    local number, place, more, ms = string.match(rest, '^.(%d+)[%d,]*:[%d,]*:(%w+)(!?):(%d+)$', size + 2)
    local known = more == '!' and redis.call('HGET', attempts, place .. ':' .. ms .. '-' .. number)
    older(tonumber(known and string.match(known, '^%d+@(%d+)|') or ms))
    from = '(' .. size .. ':' .. string.sub(rest, 1, size) .. ';'
  end
end
-- The streams' next messages. A cursor lies below its stream's head, mostly just below: the stream with the oldest cursor
-- comes first, and then only those that could hold something older still; up to a megabyte of bodies is fetched for that.
local function look_at_heads(cursors, floors)
  local fetched, looks, best = 0, 0, nil
  local function look(turn)
    local key = KEYS[STREAMS + turn]
    local entry = key and redis.call('XRANGE', key, '(' .. cursors[turn], '+', 'COUNT', 1)[1]
    if not entry then return end
    looks, fetched = looks + 1, fetched + #(entry[2][4] or '')
    older(tonumber(string.match(entry[1], '^%d+')))
  end
  for turn, floor in pairs(floors) do
    if not best or floor < floors[best] then best = turn end
  end
  if best then look(best) end
  for turn, floor in pairs(floors) do
    if looks > PLACES_SEEN or fetched > 1048576 then break end
    if turn ~= best and (oldest < 0 or floor < oldest) then look(turn) end
  end
end
local function look_at_streams(turns)
  local cursors, floors = {}, {}
  for from = 1, #turns, 4000 do
    local fields, upto = {}, math.min(#turns, from + 3999)
    for at = from, upto do fields[at - from + 1] = 'h' .. turns[at] end
    local values = redis.call('HMGET', lens, unpack(fields)) -- at most 4,000
    for at = from, upto do
      local turn, cursor = turns[at], values[at - from + 1] or '0-0'
      cursors[turn], floors[turn] = cursor, tonumber(string.sub(cursor, 1, 13)) or 0 -- ms have so many digits until 2286
    end
  end
  look_at_heads(cursors, floors)
end
