-- The journal: what happened to the queue's messages (docs/journal.md). A call that finds `rules.journal` above 0
-- begins its list of events, and appends it as one entry of the stream when it ends.

-- Appends one entry with `size` events. Its id is the number of the last of them, and the time. A call never fails
-- because of its journal: readers notice what could not be written, since its numbers are missing.
function Journal.append_events(q, size, text)
  local last = call('HINCRBY', q.keys[META], 'events', size)
  local oldest = spell(max(0, last - q.rules.journal))
  pcall_redis('XADD', q.keys[JOURNAL], 'MINID', '~', oldest, format('%.0f-%.0f', last, q.now), '1', text)
end

-- Begins to note what happens to messages in this call, and looks at the name of its client, if nothing has yet.
function Journal.begin_events(q, client)
  if client then
    Arguments.check_all(q)
    Arguments.check({client}, {'client'})
  end
  q.events = {size = 0, kinds = {}, ids = {}, lengths = {}, owned = {}, counts = {}, dues = {}}
end

-- Notes one event: its kind, a letter; the message's id and shard key; its deliveries; when it is due, if it is
-- delayed.
function Journal.note_event(q, kind, id, shard_key, deliveries, due)
  local events = q.events
  if not events then return end
  local at = events.size + 1
  events.size = at
  events.kinds[at], events.ids[at], events.lengths[at], events.owned[at] = kind, id, #shard_key, shard_key
  events.counts[at], events.dues[at] = deliveries, due and spell(due) or ''
end

-- Returns who asked for a call, and what was noted of it, in what the call says of its caller: that is "client", or
-- "client\31by\31note", where '' in place of `by` is the client.
function Journal.who_of(said)
  local client, by, note = match(said, '^([^\31]*)\31([^\31]*)\31(.*)$')
  if not client then return said, '' end
  return by ~= '' and by or client, note
end

-- Appends the events of this call, and which client made them.
function Journal.save_events(q, client)
  local events = q.events
  if not events or events.size == 0 then return end
  Journal.append_events(q, events.size, concat({
    concat(events.kinds), concat(events.ids, ','), concat(events.lengths, ','), concat(events.counts, ','),
    concat(events.dues, ','), client, concat(events.owned),
  }, '\n'))
end
