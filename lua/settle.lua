-- One end for all deliveries: ack, nack (at once or after a delay), reject, and what a reader gives back unseen. Kinds:
-- 'a' ack, 'n' nack, 'r' reject, 'u' nack uncounted, 'g' given back unseen.
--
-- A message is taken out of one place and put into another within one call. The effects in their order:
--   for each    end       ack: nothing yet. Others: XDEL of the entry that moves, HSET of its body and error; or XADD
--                         of a letter. SREM for a cancelled one
--   close       turns     ZADD, ZREM: as its look (types.lua)
--               leases    ZREM: the tokens. Only a lone plain ack does so before all else, as its look (`goes_first`)
--               state     HSET
--               places    where letters lie; returned, blocks, due; unique keys
--               bodies    XDEL, HDEL of what is over, which fails no call
--               tell      notifications, journal, ids for those who wait for results
-- Other verbs that change accounts (cancel, purge, limit, ...) end by the same `close_change`, and a read like it.

-- Adds the payloads of these, whether they lie by themselves or not: so none is left behind, whatever ends a message.
-- (Without a call of `field_of_payload` for each.)
local function with_payloads(ids)
  local number = #ids
  for at = 1, number do ids[number + at] = 'p' .. ids[at] end
end

-- Removes what is left of messages that are over. If a key has another type nothing is left, so that fails no call.
local function remove_bodies(q)
  local over = q.over
  for at = 1, over and #over or 0 do
    local place = over[at]
    local ids = over[place]
    if place == 'd' then
      with_payloads(ids)
      pcall_redis('HDEL', q.keys[BODIES], unpack(ids)) -- at most 2,000: a read, and their payloads
    else
      pcall_redis('XDEL', Messages.stream_key(q, place), unpack(ids)) -- at most 1,000: a read
    end
  end
  local fields = q.lists and q.lists.without_error
  for at = 1, fields and #fields or 0, 4000 do
    pcall_redis('HDEL', q.keys[ERRORS], unpack(fields, at, min(#fields, at + 3999))) -- at most 4,000: a part
  end
end

-- Returns the body of a message that leaves the stream where it lies, so that no read must declare that stream for it;
-- and the payload of an entry, if that is to lie by itself.
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

-- Keeps the last error of a message with its kind, and when it comes due. Returns its flags.
local function keep_error(q, id, flags, due, text, kind)
  if text == '' then text, kind = DeadLetters.error_of(q, id, flags) end
  -- The mark stands for an error that is not stored. From here on it is, or another one takes its place.
  flags = gsub(flags, '[lL]', '')
  if text == '' and not due then return flags end
  call('HSET', q.keys[ERRORS], id, concat({due and spell(due) or '', kind, text}, '|'))
  return find(flags, 'e', 1, true) and flags or 'e' .. flags
end

-- A message is not delivered again: it goes to the dead letters, or waits for room there. `m` has its key, place, id,
-- attempts, flags, the payload if that lies by itself and was looked up, the kind of the journal's event, and the group
-- and the kind of its failure. Returns the letter of the reply.
function Settle.end_dead(q, a, m, text, body, is_rejected)
  local id, flags = m.id, m.flags
  local last_error = text ~= '' and text or DeadLetters.error_of(q, id, flags)
  if DeadLetters.can_be_letter(body) and DeadLetters.has_room_for_dead(q, a.name) then
    local reason = is_rejected and last_error or 'max deliveries'
    q.ended = q.ended or {}
    q.ended[#q.ended + 1] = DeadLetters.bury(q, id, reason, m.attempts, last_error, body, m.payload, m.kind, m.group)
    if find(flags, 'u', 1, true) then Unique.release_key(q, body, id) end -- it has none when it is redriven
    if m.place == 'd' then Messages.drop_body(q, 'd', id) end
    add(q, 'without_error', id)
    return 'd'
  end
  -- No room: it waits like a delayed message, so that reads try it again. It is not dropped, and blocks nobody.
  local at = q.now + DeadLetters.RETRY_AFTER
  flags = keep_error(q, id, flags, at, last_error, m.failure)
  Messages.write_body(q, id, body, m.payload)
  if find(flags, 'u', 1, true) then Unique.note_unique(q, body, id, 'p') end
  -- Without the mark the next try would judge it by its deliveries, and deliver it again.
  if is_rejected and not find(flags, 'r', 1, true) then flags = flags .. 'r' end
  DeadLetters.wait_for_room(q, a, m.key, id, m.attempts, flags, body, at)
  return 'o'
end

local function end_again(q, a, p, attempt, flags, delay, text, body, payload, kind)
  local id = p.id
  local due = delay > 0 and q.now + delay or nil
  flags = keep_error(q, id, flags, due, text, kind)
  if p.place ~= 'd' then Messages.write_body(q, id, body, payload) end
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

-- Notes how a try failed. Returns its group, and the kind of the error. A message that is given back without a word has
-- not failed, unless it dies of that.
local function note_failure(q, a, p, body, payload, try, usual)
  local group, kind = Failures.group_of(q, try, usual, p.id, body, payload)
  Failures.note_try(q, group, usual == 'retry', a, p.id, p.key, body, try and try.trace or '')
  return group, kind
end

-- A message is to be delivered again, now or after a delay, or it is dead. Returns the letter of the reply.
local function end_returned(q, a, p, kind, ARGV, at)
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
  local body, payload = take_body(q, place, id)
  if not body then
    State.count_up(q, 'vanished', 1)
    Journal.note_event(q, 'z', id .. '-' .. place, '', 0)
    return 'l'
  end
  local delay, text, failure = ARGV[at + 1] + 0, ARGV[at + 2], ''
  local try = Failures.read_try(ARGV[at + 3])
  if kind == 'r' or kind == 'n' and attempt >= q.rules.deliveries then
    local group, its_kind = note_failure(q, a, p, body, payload, try, kind == 'r' and 'rejected' or 'dead')
    local m = {
      key = p.key, place = place, id = id, attempts = attempt, flags = flags, payload = payload,
      kind = kind == 'r' and 'r' or 'b', group = group, failure = its_kind,
    }
    return Settle.end_dead(q, a, m, text, body, kind == 'r')
  end
  if try then
    local _, its_kind = note_failure(q, a, p, body, payload, try, 'retry')
    failure = its_kind
  end
  return end_again(q, a, p, attempt, flags, delay, text, body, payload, failure)
end

-- Returns the parts of all tokens in one list, and the fields of their accounts, each once. A call has one argument for
-- each lease, its token, and three more where it is not an ack: the delay in ms, the error, and how the try failed.
function Settle.look_at_tokens(ARGV, first, stride, parents)
  local parts = {nil, nil, nil, nil, nil}
  local fields = {nil}
  local seen = #ARGV > first and {} -- of a lone one there is nothing to see
  local n = 0
  for at = first, #ARGV, stride do
    local place, id, attempt, marks, key = match(ARGV[at], Leases.TOKEN)
    if not place then Arguments.refuse('argument ' .. at .. ' is no token') end
    parts[n + 1], parts[n + 2], parts[n + 3], parts[n + 4], parts[n + 5] = place, id, attempt, marks, key
    n = n + PARTS
    if parents then key = Rules.parent_of(key) end
    if not (seen and seen[key]) and Leases.is_counted(marks) then
      fields[#fields + 1] = 't:' .. key
      if seen then seen[key] = true end
    end
  end
  return parts, fields
end

-- Loads the accounts of these deliveries, where the caller had named others: it had not heard of parents, or of their
-- end.
function Settle.load_owners(q, parts)
  local names = {}
  for at = PARTS, #parts, PARTS do
    if Leases.is_counted(parts[at - 1]) then names[#names + 1] = Rules.owner_of(q.rules, parts[at]) end
  end
  Accounts.load_accounts(q, names)
end

-- Loads the children that these deliveries are of.
function Settle.load_children(q, parts)
  local names = {}
  for at = PARTS, #parts, PARTS do
    if Leases.is_counted(parts[at - 1]) then names[#names + 1] = parts[at] end
  end
  Children.load(q, names)
end

-- Looks at the shares of dead letters of those who get one.
function Settle.look_at_shares(q, parts)
  local owners = {}
  for at = PARTS, #parts, PARTS do owners[#owners + 1] = Rules.owner_of(q.rules, parts[at]) end
  DeadLetters.load_shares(q, owners)
end

local function end_delivery(q, parts, n, kind, cost, ARGV, at)
  local place, id, marks, key = parts[n + 1], parts[n + 2], parts[n + 4], parts[n + 5]
  local a = q.accounts[q.rules.parents and Rules.parent_of(key) or key]
  -- Also of a message that was cancelled: the work was done, and its place in flight is free.
  if a then Leases.end_flight(q, a, key, marks, kind == 'g' and 'nothing' or cost) end -- given back unseen
  if q.cancels > 0 then
    if q.events then Journal.note_run(q, cost) end
    if Leases.end_cancelled(q, place, id, key) then return 'c' end
  end
  if kind ~= 'a' then
    if q.events and kind ~= 'g' then Journal.note_run(q, cost) end
    local p = {place = place, id = id, attempt = parts[n + 3] + 0, marks = marks, key = key}
    return end_returned(q, a or Accounts.find_account(q, Rules.owner_of(q.rules, key)), p, kind, ARGV, at)
  end
  if q.events then
    Journal.note_run(q, cost)
    Leases.note_end(q, 'a', place, id, key, parts[n + 3])
  end
  Messages.drop_body(q, place, id)
  if marks ~= '' and find(marks, 'e', 1, true) then add(q, 'without_error', id) end -- `errors` may have it
  return 'o'
end

-- The reply to an ack that finds no lease says so, unless an earlier try of it may have happened (then it has the
-- message's id) and the message is nowhere any more: it is done by that try or by the next holder, or somebody removed
-- it.
local function letter_of_lost(q, place, id, message_id)
  if not message_id or message_id == '-' then return 'l' end
  if DeadLetters.entry_of(q.keys[MOVED], message_id) or call('HEXISTS', q.keys[BODIES], id) == 1 then return 'l' end
  if place == 'd' then return 'o' end
  local key = Messages.stream_key(q, place)
  local entries = key and pcall_redis('XRANGE', key, id, id) -- a caller may have made up the token
  return entries and not entries.err and #entries == 0 and 'o' or 'l'
end

-- Says which of these leases are live.
local function look_at_leases(q, ARGV, first, stride)
  local tokens = {nil}
  for at = first, #ARGV, stride do tokens[#tokens + 1] = ARGV[at] end
  local live = call('ZMSCORE', q.keys[LEASES], unpack(tokens)) -- at most 250: a chunk
  local none_ended = q.lease_at > q.now
  for at = 1, #tokens do
    local score = live[at]
    live[at] = score and (none_ended or Clock.is_live(q, score))
  end
  return live
end

-- Says whether a lease may be removed before all else: a single one that is acked, with no mark but the time, of an
-- account that gets no other place by that, so nothing else can fail. If no lease has ended yet, a lease that exists is
-- live, so that says as much.
local function goes_first(q, kind, parts)
  local marks = parts[4]
  if kind ~= 'a' or #parts > PARTS or q.lease_at <= q.now or q.cancels > 0 then return false end
  if marks ~= '' and byte(marks) ~= 102 then return false end -- 102 is 'f'
  local a = q.accounts[q.names[1]]
  if a.ruled or a.behind + a.delayed + a.listed > 0 or a.queue ~= '-' then return false end
  -- It gets one (`list_idle`) if it is ahead of somebody who waits.
  return q.shared + q.behind == 0 or a.flight > 1 or marks == '' and not a.served
end

-- Settles these deliveries, as far as they may be. Returns a letter for each. One that comes twice is settled once, as
-- it stands first. `tried` are the ids of the messages that an earlier try may have settled, '0' for none.
function Settle.settle_all(q, ARGV, first, stride, parts, kind, costs, tried)
  if q.rules.parents then Settle.load_children(q, parts) end
  if goes_first(q, kind, parts) then -- then its removal says whether it is live
    local is_live = call('ZREM', q.keys[LEASES], ARGV[first]) == 1
    q.ended_leases = is_live and 1 or 0
    if is_live then return end_delivery(q, parts, 0, kind, costs ~= '' and costs, ARGV, first) end
    return letter_of_lost(q, parts[1], parts[2], tried ~= '0' and tried)
  end
  local live = look_at_leases(q, ARGV, first, stride)
  local letters = {nil}
  local over = {nil}
  local told = {} -- the letters by token
  local next_cost = costs ~= '' and gmatch(costs, '[^,]+')
  local next_tried = tried ~= '0' and gmatch(tried, '%S+')
  for n = 1, #live do
    local at = first + (n - 1) * stride
    local token = ARGV[at]
    local cost = next_cost and next_cost()
    local message_id = next_tried and next_tried()
    local letter = told[token]
    if not letter and live[n] then
      over[#over + 1] = token
      letter = end_delivery(q, parts, (n - 1) * PARTS, kind, cost, ARGV, at)
    end
    letters[n] = letter or letter_of_lost(q, parts[n * PARTS - 4], parts[n * PARTS - 3], message_id)
    told[token] = letters[n]
  end
  q.ended_leases, q.settled = #over, over
  return concat(letters)
end

local NO_LISTS = {}

-- Writes down what a call did besides changing the state, if it did.
function Settle.save_rest(q)
  if q.dirty or q.lists and next(q.lists) then
    -- None of these may fail: their types were looked at. The bodies go last: a body that nobody names is only memory,
    -- but a message that is named without a body counts as vanished.
    local lists = q.lists or NO_LISTS
    if lists.moved then DeadLetters.save_places(q) end
    Waiting.save_waiting(q)
    if lists.moments or lists.later or lists.not_later then Due.save_due(q) end
    if lists.noted or lists.freed or lists.not_looked_at then Unique.save_noted(q) end
  end
  if q.over or q.lists then remove_bodies(q) end
end

-- Begins a call that changes accounts, and ends it. It declares this many keys before the streams. Behind them stand
-- fields to look at, too.
function Settle.open_change(KEYS, fixed, ...)
  local q = State.open_call(KEYS, fixed, ...)
  if not q then return nil end
  if q.rules.journal > 0 then Journal.begin_events(q) end
  return q
end

function Settle.close_change(q, client)
  if q.children then Children.save(q) end
  Turns.save_accounts(q)
  -- After the accounts, which say what is pending of `turns` and `due`.
  if q.dirty or q.lists then Turns.begin_effects(q) end
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
