-- The bodies of messages that are delivered again, read many at a time. `q.entries` has those that were read, by handle, or by
-- entry id where they lie in the store of delayed messages. What this misses is read by its id: it is gone, or others'
-- entries hid it.

-- Reads entries of the store of delayed messages from one id to another.
local function read_stored(q, first, last, count)
  local entries = q.entries
  for _, entry in ipairs(redis.call('XRANGE', q.bodies, first, last, 'COUNT', count)) do entries[entry[1]] = entry end
end

-- Reads bodies out of the store, given their ids by the numbers in these. It has them in the order of these numbers, so those
-- whose numbers follow each other are one range, whoever's they are.
local function load_ids(q, ids)
  for number in pairs(ids) do
    if not ids[number - 1] then
      local last = number
      while ids[last + 1] do last = last + 1 end
      if last > number then
        read_stored(q, ids[number], ids[last], last - number + 1)
      else
        local id = ids[number]
        q.entries[id] = redis.call('XRANGE', q.bodies, id, id)[1]
      end
    end
  end
end

-- Reads bodies out of streams. What waits in a stream's redelivery queue is often all that the stream has: so they are one
-- range, from the first to the last, but no more entries than there are messages.
local function load_streamed(q, handles)
  local ranges, places = {}, {}
  for _, handle in ipairs(handles) do
    local place, id = string.match(handle, '^(%d+):(.*)$')
    local range = place and ranges[place]
    if range then
      range.last, range.size = id, range.size + 1
    elseif place then
      ranges[place], places[#places + 1] = {first = id, last = id, size = 1}, place
    end
  end
  for _, place in ipairs(places) do
    local range = ranges[place]
    local entries = range.size > 1
      and redis.call('XRANGE', q.streams[place], range.first, range.last, 'COUNT', range.size) or {}
    for _, entry in ipairs(entries) do q.entries[place .. ':' .. entry[1]] = entry end
  end
end

-- Reads the bodies of these messages.
local function load_bodies(q, handles)
  local ids, streamed = {}, {}
  for _, handle in ipairs(handles) do
    local id, number = string.match(handle, '^d:(%d+%-(%d+))$')
    if id then ids[tonumber(number)] = id else streamed[#streamed + 1] = handle end
  end
  if #streamed > 0 then load_streamed(q, streamed) end
  load_ids(q, ids)
end
