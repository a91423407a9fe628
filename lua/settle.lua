-- One end for all deliveries: ack, nack (at once or after a delay), reject, and what a reader gives back unseen. Kinds:
-- 'a' ack, 'n' nack, 'r' reject, 'u' nack uncounted, 'g' given back unseen.
--
-- A message is taken out of one place and put into another within one call. The effects in their order:
--   for each    end       ack: nothing yet. Others: XDEL of the entry that moves, HSET of its body and error; or XADD
--                         of a letter. Of a cancelled one SREM
--   close       leases    ZREM: the tokens. Only a lone plain ack does so before all else, as its look (`goes_first`)
--               state     HSET
--               places    where letters lie; returned, blocks, turns, due; unique keys
--               bodies    XDEL, HDEL of what is over, which fails no call
--               tell      notifications, journal, ids for those who wait for results
-- Other verbs that change accounts (cancel, purge, limit, ...) end by the same `close_change`, and a read like it.

-- Removes what is left of messages that are over. If a key has another type nothing is left, so that fails no call.
local function remove_bodies(q)
  local over = q.over or {}
  for _, place in ipairs(over) do
    local ids = over[place]
    if place == 'd' then
      pcall_redis('HDEL', q.keys[BODIES], unpack(ids)) -- at most 1,000: a read
    else
      pcall_redis('XDEL', Messages.stream_key(q, place), unpack(ids)) -- at most 1,000: a read
    end
  end
  local fields = q.lists and q.lists.without_error
  if not fields then return end
  for at = 1, #fields, 4000 do
    pcall_redis('HDEL', q.keys[ERRORS], unpack(fields, at, min(#fields, at + 3999))) -- at most 4,000: a part
  end
end

-- Returns the body of a message that leaves the stream where it lies, so that no read must declare that stream for it.
local function take_body(q, place, id)
  if place == 'd' then return call('HGET', q.keys[BODIES], id) end
  local key = Messages.stream_key(q, place)
  local entry = key and call('XRANGE', key, id, id)[1]
  if not entry then return nil end
  -- It is nowhere until `end_again` or `end_dead` puts it where it lies next. Nothing may fail between the two: so
  -- `settle` has looked at all types before.
  call('XDEL', key, id)
  return Messages.body_of_entry(place, entry[2])
end

-- Keeps the last error of a message, and when it comes due. Returns its flags.
local function keep_error(q, id, flags, due, text)
  if text == '' then text = DeadLetters.error_of(q, id, flags) end
  -- The mark stands for an error that is not stored. From here on it is, or another one takes its place.
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
  if DeadLetters.can_be_letter(body) and DeadLetters.has_room_for_dead(q, a.name) then
    local reason = is_rejected and last_error or 'max deliveries'
    q.ended = q.ended or {}
    q.ended[#q.ended + 1] = DeadLetters.bury(q, id, reason, m.attempts, last_error, body, m.kind)
    if find(flags, 'u', 1, true) then Unique.release_key(q, body, id) end -- it has none when it is redriven
    Messages.drop_body(q, 'd', id)
    add(q, 'without_error', id)
    return 'd'
  end
  -- No room: it waits like a delayed message, so that reads try it again. It is not dropped, and blocks nobody.
  local at = q.now + DeadLetters.RETRY_AFTER
  flags = keep_error(q, id, flags, at, last_error)
  call('HSET', q.keys[BODIES], id, body)
  if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'p') end
  -- Without the mark the next try would judge it by its deliveries, and deliver it again.
  if is_rejected and not find(flags, 'r', 1, true) then flags = flags .. 'r' end
  DeadLetters.wait_for_room(q, a, m.key, id, m.attempts, flags, body, at)
  return 'o'
end

local function end_again(q, a, p, attempt, flags, delay, text, body)
  local id = p.id
  local due = delay > 0 and q.now + delay or nil
  flags = keep_error(q, id, flags, due, text)
  if p.place ~= 'd' then call('HSET', q.keys[BODIES], id, body) end
  if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'w') end
  if due then
    Due.put_off(q, a, p.key, due, 'd', id, attempt .. flags)
  else
    Waiting.give_back(q, a, p.key, 'd', id, attempt .. flags)
  end
  if not due then Notifications.notify_reader(q) end
  if q.events then
    local origin, key, attributes = Messages.head_of_body(body)
    local deliveries = attempt + Messages.deliveries_before(attributes)
    Journal.note_event(q, 'n', Messages.message_id(id, origin, key), key, deliveries, due)
  end
  return 'o'
end

-- A message is to be delivered again, now or after a delay, or it is dead. Returns the letter of the reply.
local function end_returned(q, a, p, kind, delay, text)
  local place, id, attempt = p.place, p.id, p.attempt
  local flags = Leases.flags_in(p.marks)
  if kind == 'u' or kind == 'g' then attempt = attempt - 1 end
  -- Unlike all others it stays in its stream: its caller (shardq/ops/read/give_back.py) declares no streams.
  if kind == 'g' then
    if find(flags, 'u', 1, true) then Unique.note_unique(q, call('HGET', q.keys[BODIES], id) or '', id, 'w') end
    Waiting.give_back(q, a, p.key, place, id, attempt .. flags)
    Leases.note_end(q, 'u', place, id, p.key, attempt)
    return 'o'
  end
  local body = take_body(q, place, id)
  if not body then
    State.count_up(q, 'vanished', 1)
    Journal.note_event(q, 'z', id .. '-' .. place, '', 0)
    return 'l'
  end
  if kind == 'r' or kind == 'n' and attempt >= q.rules.deliveries then
    local m = {key = p.key, id = id, attempts = attempt, flags = flags, kind = kind == 'r' and 'r' or 'b'}
    return Settle.end_dead(q, a, m, text, body, kind == 'r')
  end
  return end_again(q, a, p, attempt, flags, delay, text, body)
end

-- Returns the parts of all tokens in one list, and the fields of their accounts, each once. A call has one argument for
-- each lease, its token, and two more where it is not an ack: the delay in ms and the error.
function Settle.look_at_tokens(ARGV, first, stride, parents)
  local parts = {nil, nil, nil, nil, nil}
  local fields = {nil}
  local seen, n = {}, 0
  for at = first, #ARGV, stride do
    local place, id, attempt, marks, key = match(ARGV[at], Leases.TOKEN)
    if not place then Arguments.refuse('argument ' .. at .. ' is no token') end
    parts[n + 1], parts[n + 2], parts[n + 3], parts[n + 4], parts[n + 5] = place, id, attempt, marks, key
    n = n + PARTS
    if parents then key = Rules.parent_of(key) end
    if not seen[key] and byte(marks, -1) ~= 45 then -- '-': it is on no account
      fields[#fields + 1], seen[key] = 't:' .. key, true
    end
  end
  return parts, fields
end

-- Loads the accounts of these deliveries, where the caller had named others: it had not heard of parents, or of their
-- end.
function Settle.load_owners(q, parts)
  local names = {}
  for at = PARTS, #parts, PARTS do
    if byte(parts[at - 1], -1) ~= 45 then names[#names + 1] = Rules.owner_of(q.rules, parts[at]) end
  end
  Accounts.load_accounts(q, names)
end

-- Loads the children that these deliveries are of.
function Settle.load_children(q, parts)
  local names = {}
  for at = PARTS, #parts, PARTS do
    if byte(parts[at - 1], -1) ~= 45 then names[#names + 1] = parts[at] end -- '-': it is on no account
  end
  Children.load(q, names)
end

-- Looks at the shares of dead letters of those who get one.
function Settle.look_at_shares(q, parts)
  local owners = {}
  for at = PARTS, #parts, PARTS do owners[#owners + 1] = Rules.owner_of(q.rules, parts[at]) end
  DeadLetters.load_shares(q, owners)
end

local function end_delivery(q, parts, n, kind, cost, delay, text)
  local place, id, marks, key = parts[n + 1], parts[n + 2], parts[n + 4], parts[n + 5]
  local a = q.accounts[q.rules.parents and Rules.parent_of(key) or key]
  -- Also of a message that was cancelled: the work was done, and its place in flight is free.
  if a then Leases.end_flight(q, a, key, marks, kind == 'g' and 'nothing' or cost) end -- of what nobody saw
  if q.cancels > 0 and Leases.end_cancelled(q, place, id, key) then return 'c' end
  if kind ~= 'a' then
    local p = {place = place, id = id, attempt = parts[n + 3] + 0, marks = marks, key = key}
    return end_returned(q, a or Accounts.find_account(q, Rules.owner_of(q.rules, key)), p, kind, delay, text)
  end
  if q.events then Leases.note_end(q, 'a', place, id, key, parts[n + 3]) end
  Messages.drop_body(q, place, id)
  if find(marks, 'e', 1, true) then add(q, 'without_error', id) end -- `errors` may have something of it
  return 'o'
end

-- An ack that finds no lease is told so, unless an earlier try of it may have happened (then it has the message's id)
-- and the message is nowhere any more: it is done by that try or by the next holder, or somebody removed it.
local function letter_of_lost(q, place, id, message_id)
  if not message_id or message_id == '-' then return 'l' end
  if DeadLetters.entry_of(q.keys[MOVED], message_id) or call('HEXISTS', q.keys[BODIES], id) == 1 then return 'l' end
  if place == 'd' then return 'o' end
  local key = Messages.stream_key(q, place)
  local entries = key and pcall_redis('XRANGE', key, id, id) -- a caller may have made up the token
  return entries and not entries.err and #entries == 0 and 'o' or 'l'
end

-- Says which of these leases are live.
local function look_at_leases(q, tokens)
  local live = call('ZMSCORE', q.keys[LEASES], unpack(tokens)) -- at most 250: a chunk
  local none_ended = q.lease_at > q.now
  for at, score in ipairs(live) do live[at] = score and (none_ended or Clock.is_live(q, score)) end
  return live
end

-- Says whether a lease may be removed before all else: a single one that is acked, of an account of which nothing more
-- is known, so nothing else can fail. If no lease has ended yet, a lease that exists is live, so that says as much.
local function goes_first(q, kind, parts)
  if kind ~= 'a' or #parts > PARTS or q.lease_at <= q.now or q.cancels > 0 or parts[4] ~= '' then return false end
  local a = q.accounts[q.names[1]]
  return not a.ruled and a.number ~= nil
end

-- Settles these deliveries, as far as they may be. Returns a letter for each. One that comes twice is settled once, as
-- it stands first. `tried` are the ids of the messages of which an earlier try may have happened, '0' for none.
function Settle.settle_all(q, ARGV, first, stride, parts, kind, costs, tried)
  local letters, over, tokens, live = {}, {}, {}, nil
  for at = first, #ARGV, stride do tokens[#tokens + 1] = ARGV[at] end
  if q.rules.parents then Settle.load_children(q, parts) end
  local is_removed = goes_first(q, kind, parts)
  if is_removed then live = {call('ZREM', q.keys[LEASES], tokens[1]) == 1} else live = look_at_leases(q, tokens) end
  local next_cost = costs ~= '' and gmatch(costs, '[^,]+')
  local next_tried = tried ~= '0' and gmatch(tried, '%S+')
  local told = #tokens > 1 and {} -- the letters by token
  for n, token in ipairs(tokens) do
    local at = first + (n - 1) * stride
    local cost = next_cost and next_cost()
    local message_id = next_tried and next_tried()
    local letter = told and told[token]
    if not letter and live[n] then
      local delay, text = 0, ''
      if stride > 1 then delay, text = ARGV[at + 1] + 0, ARGV[at + 2] end
      over[#over + 1] = token
      letter = end_delivery(q, parts, (n - 1) * PARTS, kind, cost, delay, text)
    end
    letters[n] = letter or letter_of_lost(q, parts[n * PARTS - 4], parts[n * PARTS - 3], message_id)
    if told then told[token] = letters[n] end
  end
  q.ended_leases = #over
  if not is_removed then q.settled = over end
  return concat(letters)
end

-- Writes down what a call did besides changing the state, if it did.
function Settle.save_rest(q)
  if q.dirty or q.lists then
    -- None of these may fail: their types were looked at. The bodies go last: a body that nobody names is only memory,
    -- but a message that is named without a body counts as vanished.
    DeadLetters.save_places(q)
    Waiting.save_waiting(q)
    Turns.flush_turns(q)
    Due.save_due(q)
    Unique.save_noted(q)
  end
  if q.over or q.lists then remove_bodies(q) end
end

-- Begins a call that changes accounts, and ends it. `more` are fields to look at, too.
function Settle.open_change(KEYS, ...)
  local q = State.open_call(KEYS, 18, ...)
  if not q then return nil end
  if q.rules.journal > 0 then Journal.begin_events(q) end
  return q
end

function Settle.close_change(q, client)
  if q.children then Children.save(q) end
  Turns.save_accounts(q)
  -- After the accounts, which say what is pending of `turns` and `due`; before the first effect that cannot be undone.
  if q.dirty or q.lists then Types.look_at_pending(q) end
  -- Their scores were read, so this cannot fail for the type. With it the token is worth nothing, also to a repeated
  -- call.
  local settled = q.settled
  if settled and #settled > 0 then call('ZREM', q.keys[LEASES], unpack(settled)) end -- at most 250: a chunk
  if q.changed_shares then Shares.note(q) end
  State.save_state(q)
  Settle.save_rest(q)
  -- Notes for others come last, and fail nothing.
  if q.wakes then Notifications.wake_readers(q) end
  if q.events then Journal.save_events(q, client) end
  if q.ended then Notifications.announce_ends(q, q.ended) end
end
