-- The age of a queue: since when the message has been deliverable that waits longest. What was given back counts from then,
-- and what was delayed counts from when it was due. In each of the ways in which messages wait, at most so many places are
-- looked at: a message beyond them may have waited longer.
--- @use schedule, redelivery
local PLACES_SEEN = 100
local BYTES_SEEN = 1048576

-- Notes in `q.oldest` that a message has been deliverable since this time in ms; nil is no message.
local function note_age(q, ms)
  if ms and (q.oldest < 0 or ms < q.oldest) then q.oldest = math.max(0, ms) end
end

-- Notes the age of what is first in a bucket of an index, given the score that the bucket starts with.
local function note_bucket_age(q, index, start, upto, later)
  local from = start > 0 and string.format('%.0f', start) or '-inf'
  local first = redis.call('ZRANGEBYSCORE', index, from, string.format('%.0f', start + upto), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if first then note_age(q, first - start + later) end
end

-- Notes the age of what is due in an index by time, or whose lease has ended, and what no read has taken back yet. `kind` is
-- the index's letter in `q.due`; `later` is by how much later than its score something comes due.
local function note_index_age(q, index, kind, upto, later)
  note_bucket_age(q, index, 0, upto, later)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.due, '-inf', upto, 'LIMIT', 0, PLACES_SEEN)) do
    if string.sub(member, 1, 1) == kind then note_bucket_age(q, index, string.sub(member, 2) * SPAN, upto, later) end
  end
end

-- Returns the handles that stand first in the redelivery queue of each stream.
local function read_first_returned(q)
  local handles, from = {}, 0
  for _ = 1, PLACES_SEEN do
    local found = redis.call('ZRANGEBYSCORE', q.redelivery, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 4)
    if #found == 0 then break end
    from = (math.floor(found[2] / POSITIONS) + 1) * POSITIONS
    for at = 1, #found, 2 do
      if tonumber(found[at + 1]) < from then handles[#handles + 1] = found[at] end
    end
  end
  return handles
end

-- Notes the age of what was given back.
local function note_returned_age(q)
  local handles = read_first_returned(q)
  local known = #handles > 0 and redis.call('HMGET', q.attempts, unpack(handles)) or {} -- at most 400: four of each place
  for at, handle in ipairs(handles) do
    local since = known[at] and string.match(known[at], '^%d+@(%d+)|')
    note_age(q, tonumber(since or string.match(handle, ':(%d+)%-')))
  end
end

-- Says whether all that is held of a shard key waits for a cap or a limit: it could not be delivered.
local function is_withheld(q, shard_key)
  local name = q.parents == '1' and string.match(shard_key, '^[^/]+') or shard_key
  local held, withheld = string.match(redis.call('HGET', q.accounts, 't:' .. name) or '', '^%d+ (%d+).* !(%d+)')
  return held and held == withheld
end

-- Returns the next shard key that has something in its overflow, from a place on, since when the first message there has been
-- deliverable (ms), and the place behind; nil if there is none.
local function read_run_head(q, from)
  local member = redis.call('ZRANGEBYLEX', q.overflow, from, '(t', 'LIMIT', 0, 1)[1]
  if not member then return nil end
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local number, place, more, ms = string.match(rest, '^.(%d+)[%d,]*:[%d,]*:(%w+)(!?):(%d+)$', size + 2)
  local known = more == '!' and redis.call('HGET', q.attempts, place .. ':' .. ms .. '-' .. number)
  local shard_key = string.sub(rest, 1, size)
  return shard_key, known and string.match(known, '^%d+@(%d+)|') or ms, '(' .. size .. ':' .. shard_key .. ';'
end

-- Notes the age of what is held in overflows. The first in each run is the oldest of its shard key.
local function note_overflow_age(q)
  local from = '('
  for _ = 1, PLACES_SEEN do
    local shard_key, since, after = read_run_head(q, from)
    if not shard_key then break end
    if q.withheld == 0 or not is_withheld(q, shard_key) then note_age(q, tonumber(since)) end
    from = after
  end
end

-- Notes the age of a stream's next message. Returns how many bytes its body has, nil if there is none.
local function note_head_age(q, number, cursor)
  local key = q.streams[tonumber(number)]
  local entry = key and redis.call('XRANGE', key, '(' .. cursor, '+', 'COUNT', 1)[1]
  if not entry then return nil end
  note_age(q, tonumber(string.match(entry[1], '^%d+')))
  return #(entry[2][4] or '')
end

-- Reads the cursors of streams and the ms in them, both by stream number.
local function read_cursors(q, numbers)
  local cursors, floors = {}, {}
  for from = 1, #numbers, 4000 do
    local fields, upto = {}, math.min(#numbers, from + 3999)
    for at = from, upto do fields[at - from + 1] = 'h' .. numbers[at] end
    local values = redis.call('HMGET', q.lens, unpack(fields)) -- at most 4,000
    for at = from, upto do
      local number, cursor = numbers[at], values[at - from + 1] or '0-0'
      cursors[number], floors[number] = cursor, tonumber(string.sub(cursor, 1, 13)) or 0 -- ms have 13 digits until 2286
    end
  end
  return cursors, floors
end

-- Notes the age of the streams' next messages. A cursor lies below the next message of its stream, mostly just below. So the
-- stream with the oldest cursor comes first, and then only those that could have something older still.
local function note_stream_age(q, numbers)
  local cursors, floors = read_cursors(q, numbers)
  local looks, fetched, best = 0, 0, nil
  for number, floor in pairs(floors) do
    if not best or floor < floors[best] then best = number end
  end
  if best then looks, fetched = 1, note_head_age(q, best, cursors[best]) or 0 end
  for number, floor in pairs(floors) do
    if looks > PLACES_SEEN or fetched > BYTES_SEEN then break end
    if number ~= best and (q.oldest < 0 or floor < q.oldest) then
      local bytes = note_head_age(q, number, cursors[number])
      if bytes then looks, fetched = looks + 1, fetched + bytes end
    end
  end
end
