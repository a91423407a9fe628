-- A key of another type, which another program wrote, fails a call, and so does another key than the call has there.
-- Redis does not roll a call back, so a call looks at the keys that it may change before its first effect. Keys that it
-- has read are of the right type, and so is the one of its first effect. A call that changes keys only at its end looks
-- at those for which a change is pending: a plain write, read or ack has none. Others look at all. (Events, and notes
-- for those who wait, are appended in a way that fails nothing: see journal.lua and notifications.lua.)

-- Looks at the streams that a call declares.
local function look_at_streams(q)
  for at = q.fixed + 1, #q.declared do call('XLEN', q.declared[at]) end
end

-- Looks at the first keys of a queue. (A few of them no call fails for.)
function Types.look_at_fixed(keys)
  check_types({keys[BODIES], keys[ERRORS], keys[DEDUP], keys[MOVED]},
    {keys[TURNS], keys[DUE], keys[LEASES], keys[DELAYED], keys[DEDUP_INDEX], keys[RETURNED]},
    {keys[NOTIFICATIONS], keys[DEAD]})
  call('SCARD', keys[CANCELLED])
end

-- Looks at whatever a call may change, and the streams that it declares, unless it has taken entries out of these: once
-- for a call.
function Types.look_at_all(q)
  if q.has_looked then return end
  q.has_looked = true
  Arguments.check_all(q)
  Types.look_at_fixed(q.keys)
  if not q.has_taken then look_at_streams(q) end
end

-- Looks at what the end of one delivery may change whose message has no unique key and was not cancelled: it is given
-- back at once, or with `dies` it goes to the dead letters. (Its stream, if it lies in one, is read first.)
function Types.look_at_end(q, dies)
  local keys = q.keys
  q.has_looked = true
  Arguments.check_all(q)
  if dies then
    check_types({keys[BODIES], keys[ERRORS], keys[MOVED]}, {keys[TURNS], keys[DUE], keys[DELAYED]}, {keys[DEAD]})
  else
    check_types({keys[BODIES], keys[ERRORS]}, {keys[TURNS], keys[DUE], keys[RETURNED]}, {})
  end
end

-- Looks at whatever a write may change, and its streams.
function Types.look_at_written(q)
  local keys = q.keys
  q.has_looked = true
  Arguments.check_all(q)
  check_types({keys[BODIES], keys[DEDUP]}, {keys[TURNS], keys[DUE], keys[DELAYED], keys[DEDUP_INDEX]},
    {keys[NOTIFICATIONS]})
  look_at_streams(q)
end

-- Looks at whatever lists of `add` change: at names of keys, and at types of those that this call has not read. (Other
-- lists are of verbs that look at all keys.)
local function look_at_lists(keys, lists)
  if lists.turn or lists.turned then Arguments.check_key(keys, TURNS) end
  if lists.moments then
    Arguments.check_key(keys, DUE)
    call('ZCARD', keys[DUE])
  end
  if lists.later or lists.not_later then
    Arguments.check_key(keys, DELAYED)
    call('ZCARD', keys[DELAYED])
  end
  if lists.noted or lists.freed then Arguments.check_key(keys, DEDUP) end
  if lists.not_looked_at then Arguments.check_key(keys, DEDUP_INDEX) end
  if lists.without_error then Arguments.check_key(keys, ERRORS) end
end

-- Looks at what will be changed of those that wait, but at the type of `turns`.
local function look_at_others(q)
  if q.has_looked then return end
  local keys, lists = q.keys, q.lists
  if lists then look_at_lists(keys, lists) end
  if q.has_read_bodies then return end
  local has_bodies = q.dirty and next(q.dirty) or lists and (lists.kept or lists.used_up)
  if has_bodies then call('HLEN', keys[BODIES]) end
end

-- Looks at `turns`, if it will be changed and is not known.
function Types.look_at_turns(q)
  local lists = q.lists
  if not lists or not (lists.turn or lists.turned) or q.has_looked or q.has_read_turns then return end
  call('ZCARD', q.keys[TURNS])
end

-- Looks at what will be changed of those that wait, at the end of a write that has changed nothing so far.
function Types.look_at_waiting(q)
  look_at_others(q)
  Types.look_at_turns(q)
end

-- The same at the end of a call that may have given something back, but at the type of `turns`.
function Types.look_at_pending(q)
  local lists = q.lists
  look_at_others(q)
  if lists and (lists.back or lists.not_back) and not q.has_looked then
    Arguments.check_key(q.keys, RETURNED)
    call('ZCARD', q.keys[RETURNED])
  end
end
