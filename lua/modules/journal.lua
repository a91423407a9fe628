-- The journal: what happened to the queue's messages (docs/journal.md). `q.journal_size` says for how many events, 0 is none.

-- Appends one entry with `size` events. Its id is the number of the last of them, and the time. A call never fails because
-- of its journal: readers notice what could not be written, since its numbers are missing.
local function append_events(q, size, text)
  local last = redis.call('HINCRBY', q.meta, 'events', size)
  local oldest = string.format('%.0f', math.max(0, last - q.journal_size))
  redis.pcall('XADD', q.journal, 'MINID', '~', oldest, string.format('%.0f-%.0f', last, q.now), '1', text)
end

-- Appends that messages were written. `places` are where they lie now, as the reply says it; `ids` is what their ids begin
-- with; `dues` is the text with the times when they are due, '' if none is delayed.
local function append_written(q, ids, places, shard_keys, dues)
  local lengths, digits = {}, {}
  for i, key in ipairs(shard_keys) do
    lengths[i] = digits[#key] or string.format('%d', #key)
    digits[#key] = lengths[i]
  end
  append_events(q, #places, table.concat({
    string.rep('w', #places), ids .. table.concat(places, ','), table.concat(lengths, ','), '', dues, '',
    table.concat(shard_keys),
  }, '\n'))
end

-- Appends that messages were written, but for those that an earlier message stands for, whose id is in its place. `options` are those
-- of some messages by their index, false where there can be none.
local function append_new(q, ids, places, shard_keys, options)
  if not options then return append_written(q, ids, places, shard_keys, '') end
  local new_places, new_keys, dues = {}, {}, {}
  for i, place in ipairs(places) do
    if not string.find(place, '-', 1, true) then
      local option, at = options[i], #new_places + 1
      new_places[at], new_keys[at] = place, shard_keys[i]
      dues[at] = option and option.after ~= '' and string.format('%.0f', q.now + option.delay) or ''
    end
  end
  if #new_places > 0 then append_written(q, ids, new_places, new_keys, table.concat(dues, ',')) end
end

-- Begins to note what happens to single messages in this call; `save_events` appends it as one entry.
local function begin_events(q)
  q.events = {size = 0, kinds = {}, ids = {}, lengths = {}, owned = {}, counts = {}, dues = {}, digits = {}}
end

-- Notes one event: its kind, a letter; the message's id and shard key; its deliveries; when it is due, if it is delayed.
local function note_event(q, kind, id, shard_key, deliveries, due)
  local events = q.events
  local size = events.digits[#shard_key] or string.format('%d', #shard_key)
  local at = events.size + 1
  events.size, events.digits[#shard_key] = at, size
  events.kinds[at], events.ids[at], events.lengths[at], events.owned[at] = kind, id, size, shard_key
  events.counts[at], events.dues[at] = deliveries, due and string.format('%.0f', due) or ''
end

-- Appends the events of this call, and which client made them.
local function save_events(q, client)
  local events = q.events
  if events.size == 0 then return end
  append_events(q, events.size, table.concat({
    table.concat(events.kinds), table.concat(events.ids, ','), table.concat(events.lengths, ','),
    table.concat(events.counts, ','), table.concat(events.dues, ','), client, table.concat(events.owned),
  }, '\n'))
end

-- Reads what a caller says of the messages that it settles, as the last parts of a journal's entry: their ids, shard keys and
-- deliveries, and its own name. A caller that does not know yet that the queue has a journal says nothing.
local function read_details(text)
  local ids, lengths, counts, client, names = string.match(text, '^(.-)\n(.-)\n(.-)\n\n(.-)\n(.*)$')
  local details, at = {ids = {}, shard_keys = {}, counts = {}, client = client or ''}, 1
  for id in string.gmatch(ids or '', '[^,]+') do details.ids[#details.ids + 1] = id end
  for deliveries in string.gmatch(counts or '', '%d+') do details.counts[#details.counts + 1] = deliveries end
  for length in string.gmatch(lengths or '', '%d+') do
    details.shard_keys[#details.shard_keys + 1] = string.sub(names, at, at + length - 1)
    at = at + length
  end
  return details
end
