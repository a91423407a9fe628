-- What waits in one stream, without changing anything: `q.found` gets the shard key of each message, and since when it has been
-- deliverable (ms). `q.number` is the stream's number, `stream` its key.
--- @use attempts, messages, redelivery

-- Notes a message.
local function note_waiting(q, fields, ms)
  if fields[1] == 'K' then q.found[#q.found + 1], q.found[#q.found + 2] = fields[2], ms end
end

-- Notes messages of the stream's redelivery queue, `skipped` of which were seen. Returns how many were seen then, '' at the end.
local function note_returned(q, stream, skipped, count)
  local first = q.number * POSITIONS
  local handles = redis.call('ZRANGEBYSCORE', q.redelivery, first, first + POSITIONS - 1, 'LIMIT', skipped, count)
  for _, handle in ipairs(handles) do
    local place, id = split_handle(handle)
    local key = place == 'd' and q.bodies or stream
    local entry = redis.call('XRANGE', key, id, id)[1]
    local _, _, _, _, since = parse_attempts(redis.call('HGET', q.attempts, handle))
    if entry then note_waiting(q, entry[2], since ~= '' and since or string.match(id, '^%d+')) end
  end
  return #handles == count and skipped + count or ''
end

-- Notes messages of the stream that were never delivered, behind an entry. Returns the last entry's id, '' at the end.
local function note_new(q, stream, after, count)
  if after == '' then after = redis.call('HGET', q.lens, 'h' .. q.number) or '0-0' end
  local entries = redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', count)
  for _, entry in ipairs(entries) do note_waiting(q, entry[2], string.match(entry[1], '^%d+')) end
  return #entries == count and entries[count][1] or ''
end
