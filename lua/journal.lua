-- The journal: the events of the queue's messages (docs/journal.md). A call that finds `rules.journal` above 0 begins
-- its list of events, and appends it as one entry of the stream when it ends.
Journal.VERSION = '2' -- of an entry: the name of its field

local LONGEST_RUN = 14 -- letters of the ms that are believed of a handler
local LARGEST_VALUE = 64 -- bytes
local LARGEST_VALUES = 1000 -- bytes of all values of an event, about

-- Appends one entry with `size` events. Its id is the number of the last of them, and the time. A call never fails
-- because of its journal: readers notice what could not be written, since its numbers are missing.
function Journal.append_events(q, size, text)
  local last = call('HINCRBY', q.keys[META], 'events', size)
  local oldest = spell(max(0, last - q.rules.journal))
  local id = format('%.0f-%.0f', last, q.now)
  pcall_redis('XADD', q.keys[JOURNAL], 'MINID', '~', oldest, id, Journal.VERSION, text)
end

-- Begins to note what happens to messages in this call, and looks at the name of its client, if nothing has yet.
function Journal.begin_events(q, client)
  if client then
    Arguments.check_all(q)
    Arguments.check({client}, {'client'})
  end
  q.events = {
    size = 0, kinds = {}, ids = {}, lengths = {}, owned = {}, counts = {}, dues = {},
    charged = nil, ran = nil, values = nil, bill = nil, run = nil, -- tables that grow take longer
  }
end

-- Notes what is charged for a delivery, in ms: the next event of a delivery tells that.
function Journal.note_charge(q, ms)
  local tenths = floor(ms * 10 + 0.5)
  if tenths > 0 then q.events.bill = spell(tenths) end
end

-- Notes for how long the handler of a delivery ran that ends: its cost is that, or has it behind '~'.
function Journal.note_run(q, cost)
  local ran = cost and (match(cost, '^%d+%.?%d*$') or match(cost, '~(%d+%.?%d*)$'))
  if ran and #ran <= LONGEST_RUN then q.events.run = ran end
end

-- Sets one value of a column that few events have.
local function put_in(events, column, at, value)
  if not events[column] then events[column] = {} end
  events[column][at] = value
end

-- Spells values by name for an event: {name, value, ...}. Long ones are cut.
function Journal.spell_values(pairs_of)
  local parts, size = {}, 0
  for at = 1, #pairs_of, 2 do
    local part = gsub(sub(pairs_of[at] .. '=' .. pairs_of[at + 1], 1, LARGEST_VALUE + #pairs_of[at]), '%c', '?')
    size = size + #part + 1
    if size > LARGEST_VALUES then break end
    parts[#parts + 1] = part
  end
  return concat(parts, '\31')
end

-- Notes one event: its kind, a letter; the message's id and shard key; its deliveries; when it is due, if it is
-- delayed; and the values that it set, as `spell_values` has them.
function Journal.note_event(q, kind, id, shard_key, deliveries, due, values)
  local events = q.events
  if not events then return end
  local at = events.size + 1
  events.size = at
  events.kinds[at], events.ids[at], events.lengths[at], events.owned[at] = kind, id, #shard_key, shard_key
  events.counts[at], events.dues[at] = deliveries, due and spell(due) or ''
  if values then put_in(events, 'values', at, values) end
  local bill, run = events.bill, events.run
  if not (bill or run) or kind == 'e' then return end -- 'e': a letter makes room for the message that this is of
  if bill then put_in(events, 'charged', at, bill) end
  if run then put_in(events, 'ran', at, run) end
  events.bill, events.run = nil, nil
end

-- Returns who asked for a call, and what was noted of it, in what the call says of its caller: that is "client", or
-- "client\31by\31note", where '' in place of `by` is the client.
function Journal.who_of(said)
  local client, by, note = match(said, '^([^\31]*)\31([^\31]*)\31(.*)$')
  if not client then return said, '' end
  return by ~= '' and by or client, note
end

-- Spells such a column; '' where no event has a value.
local function spell_column(column, size, separator)
  if not column then return '' end
  for at = 1, size do column[at] = column[at] or '' end
  return concat(column, separator)
end

-- Spells what some events tell beside their columns: "charged|ran|values"; '' where none does.
local function spell_more(events)
  if not (events.charged or events.ran or events.values) then return '' end
  local size = events.size
  return spell_column(events.charged, size, ',') .. '|' .. spell_column(events.ran, size, ',') .. '|'
    .. spell_column(events.values, size, '\30')
end

-- Appends the events of this call, and which client made them.
function Journal.save_events(q, client)
  local events = q.events
  if not events or events.size == 0 then return end
  Journal.append_events(q, events.size, concat({
    concat(events.kinds), concat(events.ids, ','), concat(events.lengths, ','), concat(events.counts, ','),
    concat(events.dues, ','), client, spell_more(events), concat(events.owned),
  }, '\n'))
end

-- Notes one event of no message in a call that has no other, and appends it, if the queue keeps a journal.
function Journal.tell(keys, rules, now, client, kind, values, due)
  if rules.journal == 0 then return end
  local q = new_q{keys = keys, rules = rules, now = now}
  Journal.begin_events(q)
  Journal.note_event(q, kind, '', '', 0, due, values)
  Journal.save_events(q, client)
end
