-- Where a message is at this moment, given its id: in a stream, in an overflow, among those that were given back,
-- delayed, in flight, dead. It lies in one place only, and what leads there does not change while it lies there: the
-- number in its id, its shard key, and of what was put off the time, which stands in its body or with its error. Only
-- who moves a message changes these. A message that is in no index is in flight, so one that could not be found would
-- be taken for that.
local MOST_LEASES = 1000 -- that are looked at for the lease of one message
local LEASES_READ = 100

-- Returns the first member of an index that begins so; nil if none does.
local function first_member(index, from)
  return call('ZRANGEBYLEX', index, '[' .. from, '(' .. from .. '\255', 'LIMIT', 0, 1)[1]
end

local function find_in_order(q, key, place, id, order)
  local from = concat({Waiting.prefix_of(key) .. order, place, id, ''}, ':')
  local member = first_member(q.keys[RETURNED], from)
  if not member then return nil end
  local attempts, flags, since = match(member, '^(%d+)(%a*):(%d+)$', #from + 1)
  return {member = member, place = place, attempts = attempts + 0, flags = flags, since = since + 0}
end

-- Returns the member of `returned` for a message that lies there, and its parts; nil if it is not there. `times` are
-- when it may have come due (ms, nil for none).
local function find_returned(q, key, place, id, times)
  local found = find_in_order(q, key, place, id, Waiting.order_of_number(id))
  if found then return found end
  for _, at in pairs(times) do
    found = find_in_order(q, key, place, id, Waiting.order_of_time(at))
    if found then return found end
  end
end

-- Returns the member of `delayed` for a message that comes due at one of these times (ms, nil for none).
local function find_delayed(q, name, place, id, times)
  for _, at in pairs(times) do
    local from = concat({Waiting.prefix_of(name) .. spell_sortable(at), place, id, ''}, ':')
    local member = first_member(q.keys[DELAYED], from)
    if member then
      local attempts, flags = match(member, '^(%d+)(%a*):', #from + 1)
      return {member = member, place = place, attempts = attempts + 0, flags = flags, due = at + 0}
    end
  end
end

local function first_number(text, offset) return tonumber(match(text, '^%d+:%d+%-(%d+)', offset + 1)) end

-- Returns the number of the block that must have a message, if any has: the last one that begins at or before it.
-- (Their messages are in the order of their numbers.)
local function find_block(q, o, base, number)
  local low, high, found = o.head, o.tail, nil
  while low <= high do
    local middle = floor((low + high) / 2)
    local text = Overflow.read_block(q, Overflow.block_field(base, middle))
    local from, behind = middle, middle + 1
    local first = first_number(text, middle == o.head and o.offset or 0)
    local has_messages = first ~= nil
    if not first then from, behind, first = Gaps.find_gap(q, base, middle) end
    if first and first > number then
      high = from - 1
    else
      if has_messages then found = middle end
      low = behind or middle + 1
    end
  end
  return found
end

-- Returns where the record of a message stands in an overflow: the number of the block, and from where to where.
local function find_record(q, holder, base, id)
  local o = Overflow.overflow_of(holder)
  if o.size == 0 then return nil end
  local block = find_block(q, o, base, match(id, '%d+$') + 0)
  if not block then return nil end
  local text = Overflow.read_block(q, Overflow.block_field(base, block))
  local at = block == o.head and o.offset + 1 or 1
  while at <= #text do
    local size, from = match(text, '^(%d+):()', at)
    local upto = from + size - 1
    if match(text, '^%d+%-%d+', from) == id then
      return {block = block, from = at, upto = upto, record = sub(text, from, upto)}
    end
    at = upto + 1
  end
end

local function count_records(text, from, upto)
  local number, at = 0, from
  while at < upto do
    local size, begins = match(text, '^(%d+):()', at)
    at, number = begins + size, number + 1
  end
  return number
end

-- Estimates how many messages are before one of an overflow: those of the first block and of its own are counted, and
-- the blocks between are as if all had as many.
function Places.count_before(q, holder, base, found)
  local o = holder.overflow
  local head = Overflow.read_block(q, Overflow.block_field(base, o.head))
  local own = Overflow.read_block(q, Overflow.block_field(base, found.block))
  if found.block == o.head then return count_records(own, o.offset + 1, found.from) end
  local first = count_records(head, o.offset + 1, #head)
  local before = count_records(own, 1, found.from)
  local last = count_records(Overflow.read_block(q, Overflow.block_field(base, o.tail)), 1, o.size)
  local others = max(0, holder.behind - holder.returned - first - last)
  return first + floor(others * (found.block - o.head - 1) / max(1, o.tail - o.head - 1)) + before
end

-- Finds the lease of a message among those that end first: its token and when it ends. Nothing but a look at each finds
-- a token by its message.
function Places.find_lease(q, place, id)
  local head = place .. ':' .. id .. ':'
  for offset = 0, MOST_LEASES - 1, LEASES_READ do
    local tokens = call('ZRANGE', q.keys[LEASES], offset, offset + LEASES_READ - 1)
    for _, token in ipairs(tokens) do
      if sub(token, 1, #head) == head then return token, ceil(call('ZSCORE', q.keys[LEASES], token)) end
    end
    if #tokens < LEASES_READ then return nil end
  end
end

-- Returns at which of these places a message lay that was cancelled in flight, nil if it was not. (Its body is gone.)
function Places.cancelled_at(q, id, places)
  for _, place in ipairs(places) do
    if call('SISMEMBER', q.keys[CANCELLED], place .. ':' .. id) == 1 then return place end
  end
end

-- Says whether an entry lies below its stream's cursor, so that a read has taken it.
local function is_behind_cursor(q, number, id)
  local ms, count = match(id, '^(%d+)%-(%d+)$')
  local cursor_ms, cursor_count = match(call('HGET', q.keys[META], 'h' .. number) or '0-0', '^(%d+)%-(%d+)$')
  ms, cursor_ms = ms + 0, cursor_ms + 0
  return ms < cursor_ms or ms == cursor_ms and count + 0 <= cursor_count + 0
end

-- Judges a message that lies nowhere else: it is in flight, unless its lease is over. Then the next read gives it back,
-- or buries it, if that was its last delivery.
local function judge_flight(q, found)
  local token = Ended.token_of(q, found.place, found.id)
  if not token then return found end
  local _, _, attempt, marks = Leases.read_token(token)
  local since = ceil(call('ZSCORE', q.keys[LEASES], token))
  found.state, found.token = 'ended', token
  found.at = {attempts = attempt + 0, flags = Leases.flags_in(marks) .. 'l', since = since}
  return found
end

-- Returns where a message is whose body was found.
local function find_of_body(q, place, id, body)
  local _, key, attributes, unique_key = Messages.head_of_body(body)
  local found = {place = place, id = id, body = body, key = key, state = 'in_flight'}
  local since = call('HGET', q.keys[ERRORS], id) or ''
  -- It lies by the time for which it was put off: that of the write, or a later one, which stands with its error.
  local times = {tonumber(match(attributes, ' t(%d+)')), tonumber(match(since, '^%d+'))}
  local returned = find_returned(q, key, place, id, times)
  if returned then
    found.state, found.member, found.at = 'returned', returned.member, returned
    return found
  end
  local delayed = find_delayed(q, Rules.owner_of(q.rules, key), place, id, times)
  if delayed then
    found.state, found.member, found.at = 'delayed', delayed.member, delayed
    return found
  end
  -- Only those with a body of their own wait in an overflow, as references.
  if unique_key == '' then return found end
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
  local holder = q.rules.parents and Children.child_of(q, key) or a
  found.record = find_record(q, holder, Waiting.overflow_base(key), id)
  if found.record then found.state, found.holder = 'held', holder end
  return found
end

local function find_as_written(q, full_id, origin, id, key)
  -- Dead letters first: a message that was redriven has left `moved`, so one that is there is dead.
  local entry_id = DeadLetters.entry_of(q.keys[MOVED], full_id)
  if entry_id then return {state = 'dead', id = entry_id} end
  id = Messages.inner_id(id, origin)
  local body = call('HGET', q.keys[BODIES], id)
  if body then return find_of_body(q, 'd', id, body) end
  if origin == 'o' then
    local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
    local holder = q.rules.parents and Children.child_of(q, key) or a
    local record = find_record(q, holder, Waiting.overflow_base(key), id)
    if not record then return nil end
    local text = Messages.spell_head('o', sub(record.record, #id + 1, #id + 1), key) .. sub(record.record, #id + 2)
    return {state = 'held', place = 'd', id = id, key = key, body = text, record = record, holder = holder}
  end
  if origin == 'd' or origin == 'l' then return nil end
  local stream = Messages.stream_key(q, origin)
  local entry = stream and call('XRANGE', stream, id, id)[1]
  if not entry then return nil end
  local body, payload = Messages.body_of_entry(origin, entry[2])
  local found = find_of_body(q, origin, id, body)
  found.payload = payload
  found.is_counted = entry[2][1] == 'K'
  -- In no index and above the cursor: no read has taken it.
  if found.state == 'in_flight' and not is_behind_cursor(q, origin, id) then found.state = 'new' end
  return found
end

-- Finds a message: {state, place, id, key, body, …}. The state is 'new' (in a stream), 'held' (in an overflow),
-- 'returned', 'delayed' (also if it has come due), 'in_flight', 'ended' (its lease is over, and no read has taken it
-- back) or 'dead'; nil if there is none. `origin` is the last part of its id, and `key` its shard key if it was there.
function Places.find(q, full_id, origin, id, key)
  local found = find_as_written(q, full_id, origin, id, key)
  return found and found.state == 'in_flight' and judge_flight(q, found) or found
end

-- Counts a message of a stream that no read has taken. (A call may take out several, and the state is written at its
-- end: so what is left is remembered.)
local function take_of_stream(q, place)
  local key = Messages.stream_key(q, place)
  local lengths = q.lengths_left
  if not lengths then
    lengths = {}
    q.lengths_left = lengths
  end
  local left = max(0, (lengths[key] or call('HGET', q.keys[META], key)) - 1)
  lengths[key] = left
  State.put(q, key, left)
  q.shared = q.shared - 1
  if left > 0 then return end
  q.ready = q.ready or call('HGET', q.keys[META], 'ready')
  Streams.mark(q, place + 0, 48) -- '0'
  State.put(q, 'ready', Streams.ready(q))
end

-- Takes a message that waits, or is delayed, out of where it is; its body stays.
function Places.take_out(q, found)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, found.key))
  if found.state == 'new' then
    take_of_stream(q, found.place)
    if found.is_counted then a.taken = max(0, a.taken - 1) end
    return
  end
  if found.state == 'delayed' then
    call('ZREM', q.keys[DELAYED], found.member)
    a.delayed = a.delayed - 1
    Due.count_retrying(q, spell(found.at.attempts) .. found.at.flags, -1)
    return
  end
  local holder = q.rules.parents and Children.child_of(q, found.key) or a
  if found.state == 'returned' then
    call('ZREM', q.keys[RETURNED], found.member)
    holder.returned = holder.returned - 1
  else
    local number = match(found.record.record, '^%d+%-(%d+)')
    Overflow.remove_record(q, holder, Waiting.overflow_base(found.key), found.record, number)
  end
  holder.behind, q.behind = holder.behind - 1, q.behind - 1
  if holder ~= a then a.behind = a.behind - 1 end
end
