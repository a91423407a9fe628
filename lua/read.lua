-- The verb read: messages that time has brought come back, then messages are delivered, from the streams and from those
-- that wait.
--
-- Its steps. Changes of the state and the accounts are noted, and written once at the end. A step writes at once where
-- a later one looks at the same key; and dead letters, since only Redis knows their ids.
--   look       the state. A read that was given up on ends here (VOID)
--   heed       a pause, rate or cap of the whole queue: if that lets nothing through, the next two steps are left out
--   bring      ZREM at once: leases that ended, moments that came, a piece of each
--   deliver    ZREM, ZADD at once: `turns`, `returned`, which it looks at again; XADD of dead letters
--   decide     is there nothing? Then until when may the caller be blocked, and when shall it look again
--   close      ZADD leases; turns; HSET state; returned, blocks, due; then XDEL and HDEL of what is over; notifications
--   clear      if there was nothing, the notifications count as seen
-- Types are looked at before the first of these that writes (types.lua).
local OFTEN = 64 -- what a read passes over at most that may not be delivered, before it is sent again

-- Where the fields that a read looks at are among its values.
local READY = State.COMMON + 1
local OFFSET = State.COMMON + 2
local LEASE_AT = State.COMMON + 3
local SEEN_AT = State.COMMON + 4
local LENGTH = State.COMMON + 5
local CURSOR = State.COMMON + 6

local function look_of_read(KEYS, count)
  local names, fixed, keys = Arguments.check_plain(KEYS, 19)
  -- A read of one takes from one stream, mostly the first that is declared: its fields come with the state.
  local first = count == 1 and KEYS[fixed + 1] or nil
  local number = first and match(first, '^s(%d+)$', #names.streams)
  local q
  if number then
    q = State.open_call(KEYS, fixed, 'ready', 'offset', 'lease_at', 'seen_at', first, 'h' .. number)
  else
    q = State.open_call(KEYS, fixed, 'ready', 'offset', 'lease_at', 'seen_at')
  end
  if not q then return nil end
  local v = q.values
  q.keys, q.touched, q.prefix = keys, {}, names.streams
  -- The state knows the lengths of streams only. (Of another key, or of one that is new, `know_streams` learns.)
  if number and v[LENGTH] then
    number = number + 0
    q.lengths, q.cursors = {[number] = v[LENGTH] + 0}, {[number] = v[CURSOR] or nil}
  else
    q.lengths, q.cursors = {}, {}
  end
  -- Its last four digits; before these it says how many messages were delivered.
  local offset, lease_at = v[OFFSET], v[LEASE_AT] + 0
  local next_stream = offset % 10000
  q.given, v[OFFSET], v[LEASE_AT] = (offset - next_stream) / 10000, next_stream, lease_at
  q.ready, q.next_stream, q.lease_at, q.seen_at = v[READY], next_stream, lease_at, v[SEEN_AT]
  q.found, q.walk, q.owed = 0, q.odd.walk or '', q.odd.owed
  q.entries, q.again, q.granted = {nil, nil}, {nil}, {nil, nil} -- tables that grow take longer
  return q
end

-- A message that waited is past its deadline.
local function expire(q, w)
  Messages.drop_body(q, w.place, w.id)
  State.count_up(q, 'expired', 1)
  if find(w.flags, 'e', 1, true) then add(q, 'without_error', w.id) end
  local origin, owner = Messages.head_of_body(w.body)
  Journal.note_event(q, 'x', Messages.message_id(w.id, origin, owner), owner, w.attempts + 0)
end

-- Counts a lease that ended, which is known only by its flag. Returns the group among the failures.
local function note_ended(q, w, is_again)
  local group = Failures.task_of(q, w.id, w.body, w.payload) .. '||lease-ended'
  Failures.note_try(q, group, is_again, w.account, w.id, w.key, w.body, '')
  return group
end

-- Returns the group and the kind of the failure that a message dies of.
local function failure_of(q, w, is_rejected)
  local _, kind = DeadLetters.error_of(q, w.id, w.flags)
  if find(w.flags, 'l', 1, true) then return note_ended(q, w, false), kind end
  local class, reason = Failures.read_kind(kind)
  if reason == '' then reason = is_rejected and 'rejected' or 'dead' end
  return concat({Failures.task_of(q, w.id, w.body, w.payload), class, reason}, '|'), kind
end

-- Says whether a message may not be delivered: it is past its deadline, or was delivered often enough, or is to die
-- since it was rejected. Then it is over, or waits for room among the dead letters.
local function is_over(q, w)
  local attributes = w.attributes
  if not attributes then
    local _, _, its_attributes = Messages.head_of_body(w.body)
    attributes = its_attributes
  end
  -- The deadline first: a message that is past it is dropped and is no dead letter, however often it was delivered.
  local ends = attributes ~= '' and Messages.deadline_in(attributes)
  if ends and ends <= q.now then
    expire(q, w)
    return true
  end
  local attempts = w.attempts
  local is_rejected = w.flags ~= '' and find(w.flags, 'r', 1, true)
  if not is_rejected and (attempts == '0' or q.rules.deliveries == 0 or attempts + 0 < q.rules.deliveries) then
    return false
  end
  -- `end_dead` looks after `bodies`. An entry leaves its stream in any case: the letter, or the body of a message that
  -- waits for room among the letters, is a copy.
  if w.place ~= 'd' then Messages.drop_body(q, w.place, w.id) end
  local group, failure = failure_of(q, w, is_rejected)
  local ending = {
    key = w.key, place = w.place, id = w.id, attempts = attempts + 0, flags = w.flags, payload = w.payload, kind = 'b',
    group = group, failure = failure,
  }
  Settle.end_dead(q, w.account, ending, '', w.body, is_rejected)
  return true
end

-- Notes for the journal that a message is delivered, and when it came due if it was delayed.
local function note_delivered(q, id, key, attributes, deliveries)
  local due = tonumber(match(attributes, ' t(%d+)'))
  Journal.note_event(q, 'd', id, key, deliveries + Messages.deliveries_before(attributes), due)
end

-- Delivers an entry of a stream (its number as a text), or gives it back to its shard key if that may have no more now
-- (its limits have changed since).
local function deliver_entry(q, number, entry)
  local id, fields = entry[1], entry[2]
  if not Messages.is_ours(fields) then
    Leases.grant(q, nil, '', number, id, '1', '')
    if q.events then note_delivered(q, id .. '-' .. number, '', '', 1) end
    return true
  end
  local key, a = fields[2], nil
  if fields[1] == 'K' then
    a = q.accounts[Rules.owner_of(q.rules, key)]
    if a.taken > 0 then a.taken = a.taken - 1 end
  end
  local attributes = fields[5] == 'm' and fields[6] or ''
  local ends = attributes ~= '' and Messages.deadline_in(attributes)
  if ends and ends <= q.now then
    Messages.drop_body(q, number, id)
    State.count_up(q, 'expired', 1)
    Journal.note_event(q, 'x', id .. '-' .. number, key, 0)
    return false
  end
  if a and a.ruled and Limits.allowance(a, q.now) < 1 then
    Arguments.check_key(q.keys, RETURNED)
    Waiting.give_back(q, a, key, number, id, 0, match(id, '^%d+') + 0)
    return false
  end
  Leases.grant(q, a, key, number, id, '1', '')
  if q.events then note_delivered(q, id .. '-' .. number, key, attributes, 1) end
  return true
end

local function keys_of_entries(groups)
  local names = {nil}
  local n = 0
  for at = 2, #groups, 2 do
    local entries = groups[at]
    for i = 1, #entries do
      local fields = entries[i][2]
      if fields[1] == 'K' and Messages.is_ours(fields) then
        n = n + 1
        names[n] = fields[2]
      end
    end
  end
  return names
end

-- Loads the accounts of entries.
local function load_owners(q, groups)
  local names = keys_of_entries(groups)
  if q.rules.parents then
    Children.load(q, names)
    for at, name in ipairs(names) do names[at] = Rules.parent_of(name) end
  end
  Accounts.load_accounts(q, names)
end

-- Delivers from the legacy stream, if it has its turn: its share of many messages. Returns how many were taken.
local function from_legacy(q, need)
  local most = 0
  if need > 1 and Legacy.may_have_some(q) then
    local _, ready = gsub(Streams.ready(q), '1', '')
    -- It counts as one stream among those that have something.
    most = max(1, floor(need / (ready + 1)))
  elseif Legacy.has_turn(q) then
    q.next_stream, most = 0, need
  end
  if most == 0 then return 0 end
  local entries = Legacy.take_entries(q, most)
  for _, entry in ipairs(entries) do
    local id, body = Legacy.adopt(q, entry)
    local marks = Leases.grant(q, nil, '', 'd', id, '1', '')
    q.again[#q.again + 1] = {'d:' .. id .. ':1:' .. marks, '', body, match(entry[1], '^%d+')}
    if q.events then note_delivered(q, Messages.message_id(id, 'l'), '', '', 1) end
  end
  return #entries
end

-- Delivers what was taken out of streams.
local function deliver_entries(q, groups)
  load_owners(q, groups)
  for at = 1, #groups, 2 do
    local stream = spelled[groups[at]] or spell(groups[at])
    -- The list is copied only where an entry is left out of it: mostly none is.
    local entries, kept = groups[at + 1], nil
    for i = 1, #entries do
      local entry = entries[i]
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
local function deliver_waiting(q, w)
  local key, place, id, flags, body = w.key, w.place, w.id, w.flags, w.body
  if not body then
    State.count_up(q, 'vanished', 1)
    Journal.note_event(q, 'z', id .. '-' .. place, key, w.attempts + 0)
    return
  end
  if is_over(q, w) then return end
  local attempt = '1'
  if w.attempts ~= '0' then
    attempt = spell(w.attempts + 1)
    State.count_up(q, 'redelivered', 1)
  end
  local marks = Leases.grant(q, w.account, key, place, id, attempt, flags)
  local error_text = ''
  if flags ~= '' then
    if find(flags, 'l', 1, true) then
      note_ended(q, w, true)
      marks = Leases.mark_counted(q, place, id, attempt, marks, key)
    end
    -- In flight: from here on `replace` is refused, since the holder has the payload already.
    if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'f', q.granted[#q.granted]) end
    error_text = DeadLetters.error_of(q, id, flags)
  end
  q.again[#q.again + 1] = {place .. ':' .. id .. ':' .. attempt .. ':' .. marks, error_text, body, w.since, w.payload}
  if q.events then
    local origin, owner, attributes = Messages.head_of_body(body)
    note_delivered(q, Messages.message_id(id, origin, owner), owner, attributes, attempt + 0)
  end
end

-- Writes down the changes that are pending of what is read next.
local function flush_waiting(q)
  local lists = q.lists
  if not lists or not (lists.turn or lists.turned or lists.back or lists.kept) then return end
  Types.look_at_all(q)
  Turns.flush_turns(q)
  send(q, 'back', 'ZADD', RETURNED)
  send(q, 'kept', 'HSET', BODIES)
end

-- Delivers from those that wait, in the order of their turns. Returns how many were taken.
local function from_turns(q, need)
  -- The changes of this call count for whose turn it is: entries of streams may have filled a cap.
  Turns.schedule_all(q)
  flush_waiting(q)
  if q.children then Children.flush(q) end
  if q.is_catching_up then need = min(need, q.odd.round + 0) end
  if need < 1 then return 0 end
  local picked = Turns.choose_turns(q, need)
  if #picked == 0 then return 0 end
  local a = picked[1]
  Virtual.advance(q, a.score)
  local out = Waiting.take_turns(q, picked)
  Waiting.load(q, out)
  for at = 1, #out do deliver_waiting(q, out[at]) end
  if q.is_catching_up then State.put_odd(q, 'round', spell(max(0, q.odd.round - #out))) end
  return #out
end

-- Takes in what time has brought, in bounded pieces.
local function bring(q, view)
  local till = q.lease_at <= q.now and Clock.end_of_leases(q, view)
  local has_ended = till and q.lease_at <= till
  -- Mostly time has brought nothing: then no index is looked at.
  if not has_ended and q.due_at >= q.now + 1 and (q.walk == '' or not Due.is_walking(q)) then return end
  q.piece = q.count > 1 and min(PIECE, q.count + 32) or LEAST_PIECE
  if has_ended then Leases.take_ended(q, till) end
  if q.due_at < q.now + 1 then
    send(q, 'later', 'ZADD', DELAYED)
    Due.take_due(q)
  end
  if Due.is_walking(q) then Due.walk_accounts(q) end
end

-- New shard keys without end must not keep the others from their turns: one of 8 messages that are read is theirs, also
-- where each read takes fewer. Returns how many messages may come from the streams first; and what is due to those who
-- wait for their turn, in eighths of a message. Which read gives it is drawn, by the holder, which the client draws. (A
-- reader that came as each 8th, and gave back at once what it gets, would else have all that is theirs.) A client of
-- several partitions says how much is due to them, since it counts over all.
local function share_of_streams(q, count)
  if q.turns == 0 then return count, nil end
  if q.shared == 0 and not Legacy.may_have_some(q) then return count, nil end
  local due = Virtual.due_turns(q) + (q.adds_due or count)
  local one, other = byte(q.holder, 1, 2) -- two of its letters together make each of eight as likely
  local kept = floor((due + (one + (other or 0)) % 8) / 8)
  if kept <= 0 then return count, due end
  -- (Of shard keys with limits the streams may hold more than may be delivered: `servable` has less for it.)
  return count - min(kept, count, max(q.turns, q.servable)), due
end

local function deliver(q, count)
  -- If somebody else waits while these are worked on, their time is charged (`Leases.grant`).
  q.contested = q.shared + q.behind > count
  local front, due = share_of_streams(q, count)
  local kept = count - front
  local got, in_turn, tries = 0, 0, 0
  local before, lost
  if q.prefer and q.shared > 0 and front > 0 then got = from_preferred(q) end
  repeat -- again, for what was taken and may not be delivered
    before, lost, tries = got, q.counts and q.counts.vanished, tries + 1
    local may_be_in_streams = q.shared > 0 or Legacy.may_have_some(q)
    if may_be_in_streams and q.found < front then got = got + from_streams(q, front - q.found) end
    if q.behind > 0 and not q.missed and q.found < count then
      local taken = from_turns(q, count - q.found)
      got, in_turn = got + taken, in_turn + taken
    end
    -- The part of those that wait was kept for one round. The rest of it may come from the streams.
    front = count
    local is_same = got == before and (q.counts and q.counts.vanished) == lost
    local is_done = is_same or got - q.found > OFTEN or tries > OFTEN
  until is_done or q.found >= count or q.missed
  -- All that was taken was over, or passed over. An OK without a message would let the reader block, though more may
  -- lie behind.
  if got - q.found > OFTEN or q.found == 0 and got > 0 then q.more = true end
  if due and q.found > 0 then Virtual.put_due_turns(q, due - 8 * min(kept, in_turn)) end
  local has_idle = q.odd.idle
  if has_idle and (q.behind == 0 or q.found > 0 and (count > 1 or q.behind % 8 == 0)) then Turns.forget_idle(q) end
end

local function save_leases(q)
  local granted = q.granted
  if q.ends < q.lease_at then q.lease_at = q.ends end
  call('ZADD', q.keys[LEASES], unpack(granted)) -- at most 2,000: two for each message
end

-- Until when nothing more may be delivered, in a read that delivered something.
local function next_moment(q, till)
  local at = q.lease_at < q.due_at and q.lease_at or q.due_at
  return till and q.shared + q.behind > 0 and min(at, till) or at
end

local padded = {} -- numbers of streams as four digits

local function pad(number)
  local digits = format('%04d', number)
  if number % 1 == 0 then padded[number] = digits end
  return digits
end

-- Tells of what is over, and of what has failed: `Failures.note_try` sees to it that there is a list, if an empty one.
local function tell_ends(q)
  if q.failed then Failures.save(q) end
  Notifications.announce_ends(q, q.ended)
end

-- Returns until when nothing more may be delivered, if something was.
local function close_read(q, watch, turn, client)
  local v = q.values
  local till = q.full_at and Limits.charge_queue(q)
  Streams.save_streams(q)
  if q.children then Children.save(q) end
  Turns.save_accounts(q)
  -- After the accounts: only they say which changes of `turns` and `due` are pending.
  if q.dirty or q.lists then
    Types.look_at_pending(q)
    Types.look_at_turns(q)
  end
  -- Leases before cursors: an entry that a cursor has passed and no lease names would never be delivered again.
  if q.found > 0 then save_leases(q) end
  Turns.flush_turns(q)
  if q.marks or q.ready ~= v[READY] then State.put(q, 'ready', Streams.ready(q)) end
  local next_stream = q.next_stream
  if q.found > 0 or next_stream ~= v[OFFSET] then
    State.put(q, 'offset', spell(q.given + q.found) .. (padded[next_stream] or pad(next_stream)))
  end
  if q.lease_at ~= v[LEASE_AT] then State.put(q, 'lease_at', spell(q.lease_at)) end
  if q.shared + q.turns == 0 and not q.more then q.wakes = nil end -- what time has brought was taken: wake nobody
  local at = q.found > 0 and next_moment(q, till)
  if at then Notifications.pass_watch_on(q, at, watch, turn) end
  if q.changed_shares then Shares.note(q) end
  State.save_state(q)
  if q.over or q.lists or q.dirty then Settle.save_rest(q) end
  if q.wakes then Notifications.wake_readers(q) end
  if q.events then Journal.save_events(q, client) end
  if q.ended then tell_ends(q) end
  return at
end

local function hints_of(q, width)
  local found = Streams.ready_streams(q, width)
  for at = 1, #found do found[at] = spelled[found[at]] or spell(found[at]) end -- `concat` takes longer for each number
  local hints = concat(found, ',')
  if not q.missed then return hints end
  return q.missed .. (hints == '' and '' or ',' .. hints)
end

-- Says whether there is nothing for a reader that was handed nothing. Then it may be blocked, and notifications will
-- count as seen. (A key of another type in their place is found before the first effect.) Returns in how many ms it is
-- to look again, -1 if it shall sleep, -2 if others watch meanwhile; nil if there is something.
local function finds_nothing(q, till, watch, turn, stays)
  -- While the limits of the queue let nothing through, there is no use in coming again at once, whatever more there is.
  if q.more and not (till and till > q.now) then return nil end
  q.noted = call('XLEN', q.keys[NOTIFICATIONS])
  -- Twice as long, since the wait begins only when the caller has this reply. If that is still too short, the read at
  -- the end of the wait finds the message.
  if stays > 0 then q.waiting = max(q.waiting, q.now + 2 * stays) end
  return Notifications.watch(q, till or min(q.lease_at, q.due_at), watch, turn, stays)
end

-- Leaves sizes in the place of payloads, for a caller that fetches these where it needs them (peek.lua). Headers of
-- entries are left out, too; entries of another program stay as they are.
local function strip_payloads(q)
  for at = 2, #q.entries, 2 do
    for _, entry in ipairs(q.entries[at]) do
      local fields = entry[2]
      if Messages.is_ours(fields) then
        local attributes = fields[5] == 'm' and fields[6] or nil
        entry[2] = {fields[1], fields[2], fields[3], spell(#fields[4]), attributes and 'm', attributes}
      end
    end
  end
  for _, row in ipairs(q.again) do row[3], row[5] = Messages.strip_body(row[3], row[5]) end
end

-- The reply to a reader: how much it was handed, or that the call is to be sent again, or how long until something may
-- be there. Time brings more at `at`.
local function answer_read(q, width, wait, at, is_bare)
  if q.odd.heavy then q.turns = Limits.weight_of_turns(q) end -- the state is written down
  if is_bare then strip_payloads(q) end
  -- Last: if the call failed after this, nobody would hear any more of the messages that they announced.
  if wait then
    Notifications.clear_notifications(q)
    return {'OK', q.now, q.rules.epoch, wait, '', {}, {}, '', q.shared, q.turns, -1, q.virtual}
  end
  local status = 'OK'
  if q.missed then
    status = 'MISS'
    if q.found == 0 then width = max(1, width) end
  elseif q.more then
    status = 'MORE'
  end
  local may_sleep = status == 'OK' and q.shared + q.behind == 0 and Notifications.comes_late(q, at)
  local then_wait = may_sleep and not Legacy.may_have_some(q) and -3 or -1
  return {
    status, q.now, q.rules.epoch, then_wait, hints_of(q, width), q.entries, q.again, q.contested and q.mark or '',
    q.shared, q.turns, q.has_read_turns and Turns.first_score(q) or -1, q.virtual,
  }
end

-- Says whether this read was given up on: then nobody would look for what it leases. Until when that is to be
-- remembered is noted with it.
local function is_void(q, holder)
  local till, holders = match(q.odd.void, '^(%d+)|(.*)$')
  if till + 0 > q.now then return find(',' .. holders .. ',', ',' .. holder .. ',', 1, true) end
  State.put_odd(q, 'void', '')
end

-- How many messages the limits of the queue let through, and if none, until when. Readers that slept through a pause
-- are woken.
local function heed_queue(q, count)
  local paused = q.odd.paused
  local most, till = Limits.limit_queue(q, count)
  if paused and not q.odd.paused then Notifications.notify_readers(q, q.shared + q.behind) end
  return most, till
end

-- For how many ms the caller stays from now on, if there is nothing. A blocking wait may have come before the call.
local function stays_for(q, blocks, clock)
  local latest, slack = match(clock, '^(%d+) %d+ (%d+)')
  local sent = latest and latest - slack or q.now -- or a little later
  if sent > FAR then Arguments.refuse('the time of the caller is too large') end
  return blocks - max(0, min(blocks - 1, q.now - sent))
end

local MOST_COUNT = 1000
local MOST_HOLDER = 64
local LEASE_DIGITS = 9 -- of a time in ms: 11 days and a half
local BLOCK_DIGITS = 11 -- three years
local CLOCK_DIGITS = 13 -- a time of the server

-- Takes the head apart. A text that is no number here is none of the pattern, and no number may be larger than its
-- range. (The width is bounded by the streams that there are.)
local function read_head(text)
  local count, holder, visibility, blocks, width, prefer, all, watch, turn, due, bare =
    match(text or '', '^(%d+) ([%w_-]+) (%d+) (%d+) (%d+) ([%d-]+) ([01]) ([%d-]+)/?(%d*)=?(%d?%d?%d?%d?) ?(b?)$')
  count = count and count + 0
  if not count or count > MOST_COUNT or #visibility > LEASE_DIGITS or #blocks > BLOCK_DIGITS
    or #watch > CLOCK_DIGITS or #turn > CLOCK_DIGITS or #holder > MOST_HOLDER then
    Arguments.refuse('the head is none of a read')
  end
  return count, holder, visibility, blocks + 0, width + 0, prefer, all, watch, turn, due, bare
end

-- @verb read | allow-oom: take back what time has brought, then deliver up to `count` messages.
-- KEYS[1..19]: the first 19 of a queue (base.lua), or the first 5 alone
-- KEYS[20..] streams: the declared ones, the legacy stream last
-- ARGV[1] head: "count holder visibility blocks width prefer all watch": messages at most; a nonce that makes the
--   leases of this call its own; ms that they last; ms for which the caller stays, from when it sent the call, if there
--   is nothing, 0: it does not; how many hints to return; a stream to try first, '-' for none; '1' if all streams are
--   declared, in their order; the moment to look in the caller's last reply, by the server's clock, 0: it had none,
--   '-': others of its client watch; "moment/look" if it took over a watch, and the moment to look was "look" then.
--   Then "=due" from a client of several partitions: how much is due in this read to those that wait for a turn, in
--   eighths of a message; by default as many as messages. Then " b" if the size of each payload is to stand in its
--   place
-- ARGV[2] clock: what the caller says of the server's clock (see `read_view`); '' = nothing yet, take back no lease
-- ARGV[3] client: what the journal calls the caller
-- Reply: {'OK' | 'MISS': a stream was not declared, there may be more | 'MORE': there may be more | 'VOID' |
-- 'NOQUEUE', now, epoch,
--        ms until there may be something (-1: not known, or there is a message or more; -2: others watch; -3: there
--        is a message or more, none is left, and time brings none that somebody watches for),
--        hints "3,17",
--        {stream, {{id, {field, value, ...}}, ...}, stream, ...} delivered for the first time out of streams,
--        {{"place:id:count:marks", error, body, deliverable since in ms, its payload if that lies by itself}, ...} the
--        others, the mark of those from streams, messages in the streams, the weights of the shard keys that wait for a
--        turn together, the score in `turns` of the first of these, -1 if there is none or the call has not looked,
--        the virtual time in 0.1 ms}
function verbs.read(KEYS, ARGV)
  if not call then begin() end
  local count, holder, visibility, blocks, width, prefer, all, watch, turn, due, bare = read_head(ARGV[1])
  local q = look_of_read(KEYS, count)
  if not q then
    return {'NOQUEUE', read_time(), '', -1, '', {}, {}, '', 0, 0, -1, 0}
  end
  if q.odd.void and is_void(q, holder) then return {'VOID', q.now, q.rules.epoch, -1, '', {}, {}, '', 0, 0, -1, 0} end
  q.count, q.holder, q.ends, q.mark = count, holder, q.now + visibility, 'f' .. spell(q.now)
  q.ends_text, q.visibility, q.has_all = spell(q.ends), visibility, all == '1'
  if due ~= '' then q.adds_due = due + 0 end
  local rules = q.rules
  if rules.legacy_group then Legacy.open(q) end
  if rules.journal > 0 then Journal.begin_events(q, ARGV[3] or '\n') end
  local stays = blocks > 0 and stays_for(q, blocks, ARGV[2]) or 0
  local jump, view = q.odd.jump, nil
  local has_jumped = jump or find(ARGV[2], 'jump', 1, true)
  if ARGV[2] ~= '' and (has_jumped or q.lease_at <= q.now) then view = Clock.read_view(ARGV[2]) end
  -- Before `bring`, which must take back no lease that only seems to have ended.
  if has_jumped then Clock.update_jump(q, view, jump, visibility + 0) end
  if q.odd.late and q.odd.late + 0 > q.now + 1 then Due.note_set_back(q) end
  local till
  if rules.has_total or q.odd.paused then count, till = heed_queue(q, count) end
  if count > 0 then
    bring(q, view)
    -- After `bring`: leases that it took back have freed places.
    if q.places then count = max(0, min(count, q.places)) end
    if count == 0 then till = q.lease_at end
  end
  q.prefer = prefer ~= '-' and tonumber(prefer) or nil
  if count > 0 and (q.shared + q.behind > 0 or Legacy.may_have_some(q)) then
    deliver(q, count)
  elseif q.odd.idle then
    Turns.forget_idle(q)
  end
  watch, turn = tonumber(watch), turn ~= '' and turn + 0 or nil -- nil for '-' and ''
  local wait = q.found == 0 and not q.missed and finds_nothing(q, till, watch, turn, stays)
  local at = close_read(q, watch, turn, ARGV[3])
  return answer_read(q, width, wait, at, bare == 'b')
end
