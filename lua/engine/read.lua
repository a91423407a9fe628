-- The verb read: what time has brought comes back, then messages are delivered, from the streams and from those that
-- wait.
local OFTEN = 64 -- what a read passes over at most that may not be delivered, before it is sent again

local function look_of_read(KEYS, count)
  local first = count == 1 and KEYS[19] or nil
  local number = first and match(first, ':s(%d+)$')
  local q = State.open_call(KEYS, State.fields_of_read(number and first, number and 'h' .. number), 18)
  if not q then return nil end
  local v = q.values
  q.lengths, q.cursors, q.touched = {}, {}, {}
  if number then
    q.lengths[number + 0], q.cursors[number + 0] = tonumber(v[State.OF_READ + 1] or 0), v[State.OF_READ + 2] or nil
  end
  q.cancels, q.ready, q.next_stream, q.lease_at = v[11] + 0, v[15], v[16] + 0, v[17] + 0
  q.walk, q.owed, q.found, q.entries, q.again = v[21] or '', v[25] or nil, 0, {}, {}
  if q.owed == ',' then q.owed = nil end
  return q
end

-- Says whether a message may not be delivered: it is past its deadline, or was delivered often enough, or is to die
-- since it was rejected. Then it is over, or waits for room among the dead letters.
local function is_over(q, a, m)
  local key, place, id, attempts, flags, body = m[2], m[3], m[4], m[5], m[6], m[8]
  local origin, owner, attributes = Messages.head_of_body(body)
  local ends = Messages.deadline_in(attributes)
  if ends and ends <= q.now then
    Messages.drop_body(q, place, id)
    q.gone = q.gone + 1
    q.expired = (q.expired or 0) + 1
    if find(flags, 'e', 1, true) then add(q, 'without_error', id) end
    Journal.note_event(q, 'x', Messages.message_id(id, origin, owner), owner, attempts)
    return true
  end
  local is_rejected = find(flags, 'r', 1, true)
  if not is_rejected and (q.rules.deliveries == 0 or attempts < q.rules.deliveries) then return false end
  if place ~= 'd' then call('XDEL', Messages.stream_key(q, place), id) end
  local ending = {key = key, id = id, attempts = attempts, flags = flags, kind = 'b'}
  Settle.end_dead(q, a, ending, '', body, is_rejected)
  return true
end

-- Notes for the journal that a message is delivered, and when it came due if it was delayed.
local function note_delivered(q, id, key, attributes, deliveries)
  local due = tonumber(match(attributes, ' t(%d+)'))
  Journal.note_event(q, 'd', id, key, deliveries + Messages.deliveries_before(attributes), due)
end

-- Delivers an entry of a stream, or gives it back to its shard key if that may have no more now (its limits have
-- changed since).
local function deliver_entry(q, number, entry)
  local id, fields = entry[1], entry[2]
  if fields[1] ~= 'K' and fields[1] ~= 'k' then
    Leases.grant(q, nil, '', number, id, 1, '')
    if q.events then note_delivered(q, id .. '-' .. number, '', '', 1) end
    return true
  end
  local key, a = fields[2], nil
  if fields[1] == 'K' then
    a = q.accounts[Rules.owner_of(q.rules, key)]
    a.taken = max(0, a.taken - 1)
  end
  local attributes = fields[5] == 'm' and fields[6] or ''
  local ends = Messages.deadline_in(attributes)
  if ends and ends <= q.now then
    Messages.drop_body(q, number, id)
    q.gone = q.gone + 1
    q.expired = (q.expired or 0) + 1
    Journal.note_event(q, 'x', id .. '-' .. number, key, 0)
    return false
  end
  if a and a.ruled and Limits.allowance(a, q.now) < 1 then
    Waiting.give_back(q, a, key, number, id, 0, match(id, '^%d+') + 0)
    return false
  end
  Leases.grant(q, a, key, number, id, 1, '')
  if q.events then note_delivered(q, id .. '-' .. number, key, attributes, 1) end
  return true
end

local function owners_of_entries(q, groups)
  local names, n, rules = {}, 0, q.rules
  for at = 2, #groups, 2 do
    for _, entry in ipairs(groups[at]) do
      local fields = entry[2]
      if fields[1] == 'K' then
        n = n + 1
        names[n] = Rules.owner_of(rules, fields[2])
      end
    end
  end
  return names
end

-- Delivers from the legacy stream, if it has its turn: of many messages its share. Returns how many were taken.
local function from_legacy(q, need)
  local most = 0
  if need > 1 and Legacy.may_have_some(q) then
    local _, ready = gsub(q.ready, '1', '')
    most = max(1, floor(need / (ready + 1)))
  elseif Legacy.has_turn(q) then
    q.next_stream, most = 0, need
  end
  if most == 0 then return 0 end
  local entries = Legacy.take_entries(q, most)
  for _, entry in ipairs(entries) do
    local id, body = Legacy.adopt(q, entry)
    local marks = Leases.grant(q, nil, '', 'd', id, 1, '')
    q.again[#q.again + 1] = {'d:' .. id .. ':1:' .. marks, '', body, match(entry[1], '^%d+')}
    if q.events then note_delivered(q, Messages.message_id(id, 'l'), '', '', 1) end
  end
  return #entries
end

-- Delivers what was taken out of streams.
local function deliver_entries(q, groups)
  Accounts.load_accounts(q, owners_of_entries(q, groups))
  for at = 1, #groups, 2 do
    local stream, entries, kept = groups[at], groups[at + 1], nil
    for i, entry in ipairs(entries) do
      local delivered = deliver_entry(q, stream, entry)
      if not delivered and not kept then
        kept = {unpack(entries, 1, i - 1)} -- at most 500: of one stream
      elseif delivered and kept then
        kept[#kept + 1] = entry
      end
    end
    kept = kept or entries
    if #kept > 0 then q.entries[#q.entries + 1], q.entries[#q.entries + 2] = stream, kept end
  end
end

-- Delivers from the streams. Returns how many entries were taken.
local function from_streams(q, need)
  local old = q.legacy and from_legacy(q, need) or 0
  if old == need or q.shared == 0 then return old end
  local groups, number = Streams.take_entries(q, need - old)
  if number > 0 then deliver_entries(q, groups) end
  return old + number
end

-- Delivers one message of the stream that the reader prefers. Returns how many entries were taken.
local function from_preferred(q)
  local groups, number = Streams.take_preferred(q, q.prefer)
  if number > 0 then deliver_entries(q, groups) end
  return number
end

-- Delivers one message out of those that wait, if it may be delivered.
local function deliver_waiting(q, m)
  local a, key, place, id, attempts, flags, since, body = unpack(m, 1, 8) -- at most 8: the parts
  if not body then
    q.gone = q.gone + 1
    q.vanished = (q.vanished or 0) + 1
    Journal.note_event(q, 'z', id .. '-' .. place, key, attempts)
    return
  end
  if is_over(q, a, m) then return end
  local marks = Leases.grant(q, a, key, place, id, attempts + 1, flags)
  if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'f') end
  local head = place .. ':' .. id .. ':' .. attempts + 1 .. ':' .. marks
  q.again[#q.again + 1] = {head, DeadLetters.error_of(q, id, flags), body, spell(since)}
  if q.events then
    local origin, owner, attributes = Messages.head_of_body(body)
    note_delivered(q, Messages.message_id(id, origin, owner), owner, attributes, attempts + 1)
  end
end

-- Delivers from those that wait, in the order of their turns. Returns how many were taken.
local function from_turns(q, need)
  -- An index is read below of which changes may be pending.
  Turns.schedule_all(q)
  Turns.flush_turns(q)
  send(q, 'back', 'ZADD', q.keys[RETURNED])
  send(q, 'kept', 'HSET', q.keys[BODIES])
  local picked = Turns.choose_turns(q, need)
  if #picked == 0 then return 0 end
  for _, a in ipairs(picked) do
    if (a.served or 0) > q.virtual then q.virtual = a.served end
  end
  local out = Waiting.take_turns(q, picked)
  Waiting.load_bodies(q, out)
  for _, m in ipairs(out) do deliver_waiting(q, m) end
  return #out
end

-- What time has brought, in bounded pieces.
local function bring(q, view)
  local till = Clock.end_of_leases(q, view)
  local has_ended = till and q.lease_at <= till
  if not has_ended and q.due_at >= q.now + 1 and not Due.is_walking(q) then return end
  q.has_brought, q.piece = true, q.count > 1 and min(PIECE, q.count + 32) or PIECE / 8
  if has_ended then Leases.take_ended(q, till) end
  if q.due_at < q.now + 1 then
    send(q, 'later', 'ZADD', q.keys[DELAYED])
    Due.take_due(q)
  end
  if Due.is_walking(q) then Due.walk_accounts(q) end
end

-- New shard keys without end must not keep the others from their turns: of 8 messages that are read at once one is
-- theirs, or each 8th read of one. (Which read that is, its holder says, which the client draws: a counter in the state
-- can stand still where messages are given back at once.)
local function share_of_streams(q, count)
  if q.turns == 0 then return count end
  if count > 1 then return count - min(floor(count / 8), q.turns) end
  return byte(q.holder) % 8 == 0 and 0 or count
end

local function deliver(q, count)
  q.contested = q.shared + q.behind > count
  local front, got, before = share_of_streams(q, count), 0, nil
  if q.prefer and q.shared > 0 then got = from_preferred(q) end
  repeat -- again, for what was taken and may not be delivered
    before = got
    local may_be_in_streams = q.shared > 0 or Legacy.may_have_some(q)
    if may_be_in_streams and q.found < front then got = got + from_streams(q, front - q.found) end
    local may_be_in_turns = q.behind > 0 and not q.missed and not q.is_catching_up
    if may_be_in_turns and q.found < count then got = got + from_turns(q, count - q.found) end
    front = count
  until q.found >= count or q.missed or got == before or got - q.found > OFTEN
  if got - q.found > OFTEN or q.found == 0 and got > 0 then q.more = true end
  local has_idle = q.values[22] == '1'
  if has_idle and (q.behind == 0 or q.found > 0 and (count > 1 or q.behind % 8 == 0)) then Turns.forget_idle(q) end
end

local function save_leases(q)
  local granted = q.lists and q.lists.granted
  if not granted then return end
  if q.ends < q.lease_at then q.lease_at = q.ends end
  send(q, 'granted', 'ZADD', q.keys[LEASES])
  -- A lease that ends soon may end before another blocked reader looks again.
  if q.visibility + 0 < Notifications.SOON then Notifications.notify_reader(q) end
end

local function close_read(q, client)
  Turns.schedule_all(q)
  save_leases(q)
  Streams.save_streams(q)
  Waiting.save_children(q)
  Accounts.save_accounts(q)
  State.put_counters(q)
  local v = q.values
  if q.ready ~= v[15] then State.put(q, 'ready', q.ready) end
  if q.next_stream ~= v[16] + 0 then State.put(q, 'offset', q.next_stream) end
  if q.lease_at ~= v[17] + 0 then State.put(q, 'lease_at', spell(q.lease_at)) end
  if q.cancels ~= v[11] + 0 then State.put(q, 'cancels', q.cancels) end
  Limits.charge_queue(q)
  if q.has_idle then State.put(q, 'idle', 1) elseif q.all_forgotten then State.put(q, 'idle', 0) end
  State.save_state(q)
  Settle.save_rest(q)
  if q.over or q.lists then Settle.remove_bodies(q) end
  State.count_up(q, 'expired', q.expired)
  State.count_up(q, 'adopted', q.adopted)
  Journal.save_events(q, client)
  if q.ended then Notifications.announce_ends(q, q.ended) end
end

local function hints_of(q, width)
  local hints = Streams.ready_streams(q, width)
  if q.missed then table.insert(hints, 1, q.missed) end
  return concat(hints, ',')
end

-- What the reader is told: how much it was handed, or that the call is to be sent again, or how long until something
-- may be there.
local function answer_read(q, width, blocks, till)
  local mark = q.contested and q.mark or ''
  if q.found > 0 then
    local status = q.missed and 'MISS' or q.more and 'MORE' or 'OK'
    return {status, q.now, q.values[1], -1, hints_of(q, width), q.entries, q.again, mark}
  end
  if q.missed then return {'MISS', q.now, q.values[1], -1, hints_of(q, max(1, width)), {}, {}, ''} end
  local is_stopped = till and till > q.now
  if q.more and not is_stopped then return {'MORE', q.now, q.values[1], -1, hints_of(q, width), {}, {}, ''} end
  Notifications.clear_notifications(q, blocks)
  State.save_state(q)
  local at = till or min(q.lease_at, q.due_at)
  return {'OK', q.now, q.values[1], at < FAR and max(0, ceil(at - q.now)) or -1, '', {}, {}, ''}
end

local function is_void(q, holder)
  local till, holders = match(q.values[23] or '', '^(%d+)|(.*)$')
  return till and till + 0 > q.now and find(',' .. holders .. ',', ',' .. holder .. ',', 1, true)
end

-- @verb read | allow-oom: take back what time has brought, then deliver up to `count` messages.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: the declared ones, the legacy stream last
-- ARGV[1] head: "count holder visibility blocks width prefer all": at most so many messages; a nonce that makes the
-- leases of this
--         call its own; ms that they last; ms for which the caller will block if there is nothing, 0: it will not; how
--         many hints
--         to return; a stream to try first, '-' for none; '1' if all streams are declared, in their order
-- ARGV[2] clock: what the caller says of the server's clock (see `read_view`); '' = nothing yet, take back no lease
-- ARGV[3] client: what the journal calls the caller
-- Reply: {'OK' | 'MISS': a stream was not declared, there may be more | 'MORE': there may be more | 'VOID' |
-- 'NOQUEUE', now, epoch,
--        ms until there may be something (-1: not known, or there is a message or more), hints "3,17",
--        {stream, {{id, {field, value, ...}}, ...}, stream, ...} delivered for the first time out of streams,
--        {{"place:id:count:marks", error, body, deliverable since in ms}, ...} the others, the mark of those from
--        streams}
function verbs.read(KEYS, ARGV)
  if not call then begin() end
  local count, holder, visibility, blocks, width, prefer, all =
    match(ARGV[1], '^(%d+) (%S+) (%d+) (%d+) (%d+) (%S+) (%d)$')
  count = count + 0
  local q = look_of_read(KEYS, count)
  if not q then
    return {'NOQUEUE', read_time(), '', -1, '', {}, {}, ''}
  end
  if q.values[23] and is_void(q, holder) then return {'VOID', q.now, q.values[1], -1, '', {}, {}, ''} end
  q.count, q.holder, q.has_all, q.ends, q.mark = count, holder, all == '1', q.now + visibility, 'f' .. spell(q.now)
  q.ends_text, q.visibility = spell(q.ends), visibility
  if q.rules.legacy_group then Legacy.open(q) end
  if q.rules.journal > 0 then Journal.begin_events(q) end
  local view = ARGV[2] ~= '' and Clock.read_view(ARGV[2])
  if q.values[20] and q.values[20] ~= '' or view and view.from then
    Clock.update_jump(q, view, q.values[20], visibility + 0)
  end
  if (tonumber(q.values[24]) or 0) > q.now + 1 then Due.note_set_back(q) end
  local till
  if q.rules.has_total or q.values[18] and q.values[18] ~= '' then count, till = Limits.limit_queue(q, count) end
  if count > 0 then
    bring(q, view)
    if q.places then count = max(0, min(count, q.places)) end
    if count == 0 then till = q.lease_at end
  end
  q.prefer = tonumber(prefer) -- nil for '-'
  if count > 0 and (q.shared + q.behind > 0 or Legacy.may_have_some(q)) then
    deliver(q, count)
  elseif q.values[22] == '1' then
    Turns.forget_idle(q)
  end
  close_read(q, ARGV[3])
  q.changed = 0
  return answer_read(q, width + 0, blocks + 0, till)
end
