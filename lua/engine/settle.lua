-- One end for all deliveries: ack, nack (at once or after a delay), reject, and what a reader gives back unseen. Kinds:
-- 'a' ack, 'n' nack, 'r' reject, 'u' nack uncounted, 'g' given back unseen.

function Settle.remove_bodies(q)
  for place, ids in pairs(q.over or {}) do
    if place == 'd' then
      call('HDEL', q.keys[BODIES], unpack(ids)) -- at most 1,000: a read
    else
      call('XDEL', Messages.stream_key(q, place), unpack(ids)) -- at most 1,000: a read
    end
  end
  send(q, 'without_error', 'HDEL', q.keys[ERRORS])
end

-- Returns the body of a message that leaves the stream where it lies, so that no read must declare that stream for it.
local function take_body(q, place, id)
  if place == 'd' then return call('HGET', q.keys[BODIES], id) end
  local key = Messages.stream_key(q, place)
  local entry = key and call('XRANGE', key, id, id)[1]
  if not entry then return nil end
  call('XDEL', key, id)
  return Messages.body_of_entry(place, entry[2])
end

-- A message is done. `errors` may have something of it, as its token says.
local function end_acked(q, place, id, marks)
  q.gone = q.gone + 1
  q.acked = q.acked + 1
  Messages.drop_body(q, place, id)
  if find(marks, 'e', 1, true) then add(q, 'without_error', id) end
end

-- Keeps the last error of a message, and when it comes due. Returns its flags.
local function keep_error(q, id, flags, due, text)
  if text == '' then text = DeadLetters.error_of(q, id, flags) end
  flags = gsub(flags, 'l', '')
  if text == '' and not due then return flags end
  call('HSET', q.keys[ERRORS], id, (due and spell(due) or '') .. '||' .. text)
  return find(flags, 'e', 1, true) and flags or 'e' .. flags
end

-- A message is not delivered again: it goes to the dead letters, or waits for room there. `m` has its key, id,
-- attempts, flags, and the kind of the journal's event. Returns the letter of the reply.
function Settle.end_dead(q, a, m, text, body, is_rejected)
  local id, flags = m.id, m.flags
  local last_error = text ~= '' and text or DeadLetters.error_of(q, id, flags)
  if DeadLetters.has_room_for_dead(q) then
    local reason = is_rejected and last_error or 'max deliveries'
    q.ended = q.ended or {}
    q.ended[#q.ended + 1] = DeadLetters.bury(q, id, reason, m.attempts, last_error, body, m.kind)
    call('HDEL', q.keys[BODIES], id)
    add(q, 'without_error', id)
    return 'd'
  end
  local at = q.now + DeadLetters.RETRY_AFTER
  flags = keep_error(q, id, flags, at, last_error)
  call('HSET', q.keys[BODIES], id, body)
  if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'p') end
  if is_rejected and not find(flags, 'r', 1, true) then flags = flags .. 'r' end
  DeadLetters.park(q, a, m.key, id, m.attempts, flags, body, at)
  return 'o'
end

local function end_again(q, a, p, attempt, flags, delay, text, body)
  local id, due = p.id, delay > 0 and q.now + delay or nil
  flags = keep_error(q, id, flags, due, text)
  if p.place ~= 'd' then call('HSET', q.keys[BODIES], id, body) end
  if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'w') end
  if due then
    Due.put_off(q, a, p.key, due, 'd', id, attempt .. flags)
  else
    Waiting.give_back(q, a, p.key, 'd', id, attempt .. flags)
  end
  if not due or delay < Notifications.SOON then Notifications.notify_reader(q) end
  if q.events then
    local origin, key, attributes = Messages.head_of_body(body)
    local deliveries = attempt + Messages.deliveries_before(attributes)
    Journal.note_event(q, 'n', Messages.message_id(id, origin, key), key, deliveries, due)
  end
  return 'o'
end

-- A message is to be delivered again, now or after a delay, or it is dead. Returns the letter of the reply.
local function end_returned(q, a, p, kind, delay, text)
  local place, id, attempt, flags = p.place, p.id, p.attempt, Leases.flags_in(p.marks)
  if kind == 'u' or kind == 'g' then attempt = attempt - 1 end
  if kind == 'g' then
    if find(flags, 'u', 1, true) then Unique.note_unique(q, call('HGET', q.keys[BODIES], id) or '', id, 'w') end
    Waiting.give_back(q, a, p.key, place, id, attempt .. flags)
    Leases.note_end(q, 'u', place, id, p.key, attempt)
    return 'o'
  end
  local body = take_body(q, place, id)
  if not body then
    q.gone = q.gone + 1
    q.vanished = (q.vanished or 0) + 1
    Journal.note_event(q, 'z', id .. '-' .. place, '', 0)
    return 'l'
  end
  if kind == 'r' or kind == 'n' and attempt >= q.rules.deliveries then
    local m = {key = p.key, id = id, attempts = attempt, flags = flags, kind = kind == 'r' and 'r' or 'b'}
    return Settle.end_dead(q, a, m, text, body, kind == 'r')
  end
  return end_again(q, a, p, attempt, flags, delay, text, body)
end

-- The accounts of these tokens, to be looked at with the state.
function Settle.fields_of_tokens(ARGV, from, to, stride, parents, fields)
  local parts, seen = {}, {}
  for at = from, to, stride do
    local place, id, attempt, marks, key = Leases.read_token(ARGV[at])
    parts[#parts + 1] = {place = place, id = id, attempt = attempt + 0, marks = marks, key = key, token = ARGV[at]}
    if sub(marks, -1) ~= '-' then
      local name = parents and match(key, '^[^/]*') or key
      if not seen[name] then
        seen[name] = true
        fields[#fields + 1] = 't:' .. name
      end
    end
  end
  return parts
end

function Settle.meet_fields(q, fields, first)
  for at = first, #fields do Accounts.meet(q, sub(fields[at], 3), q.values[at]) end
end

local function end_delivery(q, p, kind, cost, delay, text)
  local name = Rules.owner_of(q.rules, p.key)
  local a = q.accounts[name]
  if a then Leases.end_flight(q, a, p.marks, cost, q.now) end
  if Leases.end_cancelled(q, p.place, p.id, p.key) then return 'c' end
  if kind ~= 'a' then return end_returned(q, a or Accounts.find_account(q, name), p, kind, delay, text) end
  Leases.note_end(q, 'a', p.place, p.id, p.key, p.attempt)
  end_acked(q, p.place, p.id, p.marks)
  return 'o'
end

-- A repeated ack whose message is gone was done by the first try, or by its next holder: done is done. Another call
-- that finds no lease did its work the first time: the message is not the caller's either way.
local function letter_of_lost(q, p, kind, repeated)
  if not repeated then return 'l' end
  if kind ~= 'a' then return 'o' end
  if p.place == 'd' then return call('HEXISTS', q.keys[BODIES], p.id) == 0 and 'o' or 'l' end
  return #call('XRANGE', Messages.stream_key(q, p.place), p.id, p.id) == 0 and 'o' or 'l'
end

-- Settles these deliveries, as far as they may be. `terms` has delay and error of each, or is nil. Returns a letter
-- for each.
function Settle.settle_all(q, parts, kind, costs, repeated, terms)
  local tokens, letters, over = {}, {}, {}
  for at, p in ipairs(parts) do tokens[at] = p.token end
  local scores = call('ZMSCORE', q.keys[LEASES], unpack(tokens)) -- at most 250: a chunk
  local next_cost = costs ~= '' and gmatch(costs, '[^,]+')
  for at, p in ipairs(parts) do
    local cost = next_cost and tonumber(next_cost()) or 0
    if Clock.is_live(q, scores[at]) then
      over[#over + 1] = p.token
      letters[at] = end_delivery(q, p, kind, cost, terms and terms[2 * at - 1] or 0, terms and terms[2 * at] or '')
    else
      letters[at] = letter_of_lost(q, p, kind, repeated)
    end
  end
  if #over > 0 then call('ZREM', q.keys[LEASES], unpack(over)) end -- at most 250: a chunk
  q.ended_leases = #over
  return concat(letters)
end

-- Writes down what a call did to messages that wait.
function Settle.save_rest(q)
  if q.dirty or q.lists then -- nothing, where nothing waits
    Waiting.save_waiting(q)
    Turns.flush_turns(q)
    Due.save_due(q)
  end
  if q.buried then State.count_up(q, 'dead_lettered', q.buried) end
  if q.vanished then State.count_up(q, 'vanished', q.vanished) end
end

-- Begins a call that changes accounts, and ends it. `more` are fields to look at, too.
function Settle.open_change(KEYS, more)
  local fields = State.fields_of_settle()
  for _, name in ipairs(more or {}) do fields[#fields + 1] = name end
  local q = State.open_call(KEYS, fields, 18)
  if not q then return nil end
  q.cancels = q.values[11] + 0
  if q.rules.journal > 0 then Journal.begin_events(q) end
  return q
end

function Settle.close_change(q, client)
  Turns.schedule_all(q)
  Waiting.save_children(q)
  Accounts.save_accounts(q)
  State.put_counters(q)
  if q.cancels ~= q.values[11] + 0 then State.put(q, 'cancels', q.cancels) end
  if q.has_idle then State.put(q, 'idle', 1) end
  State.save_state(q)
  Settle.save_rest(q)
  if q.over or q.lists then Settle.remove_bodies(q) end
  Journal.save_events(q, client)
  if q.ended then Notifications.announce_ends(q, q.ended) end
end
