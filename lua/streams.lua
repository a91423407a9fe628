-- The streams carry messages of shard keys that have nothing else waiting, nothing in flight, and are not ahead of the
-- virtual time: those are read by round robin. All others wait in `turns`.
local MOST_ENTRIES = 500 -- of one stream in one look
local BYTES = 32 -- of a shard that are looked at together

function Streams.goes_to_stream(q, a)
  -- Its own messages first, in their order: those that wait elsewhere came earlier.
  if a.behind > 0 or a.taken >= q.rules.window then return false end
  local somebody_waits = q.shared + q.behind > 0 and q.rules.window < Rules.WITHOUT_WINDOW
  if somebody_waits and (a.flight > 0 or (a.served or 0) > q.virtual) then return false end
  return not a.ruled or Limits.allowance(a, q.now) > a.taken
end

local function refuse_shard() Arguments.refuse('a shard has a stream that the call does not declare, or none') end

-- The numbers of streams by key: a table for each queue, by the prefix of their keys. All queues of the server share
-- it, so there is a bound.
local known = {}
local known_streams = 0
local MOST_KNOWN = 8192
local NONE = {}

local function refuse_stream() Arguments.refuse('a stream is none of the queue') end

local function learn_number(q, key)
  local number = Arguments.number_of_stream(q.prefix, key) or refuse_stream()
  if known_streams >= MOST_KNOWN then
    known = {}
    known_streams = 0
  end
  local its = known[q.prefix] or {}
  known[q.prefix], its[key], known_streams = its, number, known_streams + 1
  return number
end

-- Returns the number of the stream that is declared at a position.
local function number_at(q, position)
  local key = q.declared[q.fixed + position] or refuse_shard()
  local number = (known[q.prefix] or NONE)[key] or learn_number(q, key)
  if number >= #q.ready then refuse_stream() end
  q.numbers[position] = number
  return number
end

-- Learns which streams a call declares. (Of those of a lone message it looks at few.)
function Streams.meet_declared(q)
  for position = 1, #q.declared - q.fixed do number_at(q, position) end
end

-- Learns how many messages the declared streams have, by one look: those that had nothing when the call began, and in
-- which it has put something, are known.
local function load_lengths(q)
  local keys, lengths, fixed = q.declared, q.lengths, q.fixed
  local found = call('HMGET', keys[META], unpack(keys, fixed + 1)) -- at most 4,096: the streams
  for position = 1, #keys - fixed do
    if not lengths[position] then lengths[position] = (found[position] or 0) + 0 end
  end
end

-- Returns the position of the shard's stream that has the fewest messages, and of several the first. The shard is a
-- text with the position of each stream among those that the call declares: one byte, or two when more than 255 are
-- declared.
local function shortest_stream(q, shard)
  local lengths, is_wide, to, fewest = q.lengths, q.is_wide, nil, 9e15
  local numbers, ready, knows_all = q.numbers, q.ready, true
  for from = 1, #shard, BYTES do
    local bytes = {byte(shard, from, from + BYTES - 1)}
    for at = 1, #bytes, is_wide and 2 or 1 do
      local position = bytes[at]
      if is_wide then position = position * 256 + (bytes[at + 1] or 0) end
      local length = lengths[position]
      -- Mostly one of the shard has nothing undelivered, and no length need be looked up.
      if not length and byte(ready, (numbers[position] or number_at(q, position)) + 1) == 48 then -- '0'
        length = 0
        lengths[position] = 0
      end
      if not length then
        knows_all = false
      elseif length == 0 then
        return position -- no other is shorter
      elseif length < fewest then
        to, fewest = position, length
      end
    end
  end
  if knows_all then return to or refuse_shard() end
  load_lengths(q)
  return shortest_stream(q, shard)
end

-- Looks at a shard.
function Streams.check_shard(q, shard)
  local numbers, is_wide = q.numbers, q.is_wide
  if shard == '' then refuse_shard() end
  for from = 1, #shard, BYTES do
    local bytes = {byte(shard, from, from + BYTES - 1)}
    for at = 1, #bytes, is_wide and 2 or 1 do
      local position = bytes[at]
      if is_wide then position = position * 256 + (bytes[at + 1] or 0) end
      if not numbers[position] then refuse_shard() end
    end
  end
end

-- Chooses the shortest stream of its shard for a message. Returns the number of the stream.
function Streams.append(q, id, mark, message)
  local to = shortest_stream(q, message.shard)
  local e = q.appended
  local n = #e
  e[n + 1], e[n + 2], e[n + 3], e[n + 4], e[n + 5], e[n + 6], e[n + 7], e[n + 8] =
    q.fixed + to, id, mark, message.key, message.tag, message.payload, message.attributes, message.headers
  local number = q.numbers[to] or number_at(q, to)
  local length = q.lengths[to]
  if length == 0 then Streams.mark(q, number, 49) end -- '1'
  q.lengths[to], q.grown[to], q.shared = length + 1, true, q.shared + 1
  return spelled[number] or spell(number)
end

-- Looks at the streams that get something, unless that is the first effect and on one stream only.
function Streams.look_at_grown(q)
  local grown = q.grown
  if next(grown, next(grown)) == nil then return end
  for position in pairs(grown) do call('XLEN', q.declared[q.fixed + position]) end
end

-- Appends the messages to the streams that were chosen.
function Streams.save_entries(q)
  local e = q.appended
  for at = 1, #e, 8 do
    local stream, attributes, headers = q.declared[e[at]], e[at + 6], e[at + 7]
    if attributes == '' and headers == '' then
      call('XADD', stream, unpack(e, at + 1, at + 5)) -- at most 5: the words
    else
      local id, mark, key, tag, payload = unpack(e, at + 1, at + 5) -- at most 5: the words
      if headers == '' then
        call('XADD', stream, id, mark, key, tag, payload, 'm', attributes)
      elseif attributes == '' then
        call('XADD', stream, id, mark, key, tag, payload, 'h', headers)
      else
        call('XADD', stream, id, mark, key, tag, payload, 'm', attributes, 'h', headers)
      end
    end
  end
end

-- Notes that a stream has something undelivered (the digit is '1') or nothing.
function Streams.mark(q, number, digit)
  local marks = q.marks
  if not marks then
    marks = {}
    q.marks = marks
  end
  marks[number + 1] = digit
end

-- Returns a digit for each stream, with what was noted in this call.
function Streams.ready(q)
  local marks = q.marks
  if not marks then return q.ready end
  local first, digit = next(marks)
  if next(marks, first) then
    local digits = {byte(q.ready, 1, -1)}
    for at, one in pairs(marks) do digits[at] = one end
    q.ready = char(unpack(digits)) -- at most 4,096: the streams
  else
    q.ready = sub(q.ready, 1, first - 1) .. (digit == 49 and '1' or '0') .. sub(q.ready, first + 1)
  end
  q.marks = nil
  return q.ready
end

-- The ready streams, in turn from the offset on, and then those before it.
function Streams.ready_streams(q, most)
  local digits = q.marks and Streams.ready(q) or q.ready
  local turn, n = q.next_stream + 1, 0
  local found = {nil}
  local position = find(digits, '1', turn, true)
  while position and n < most do
    n = n + 1
    found[n] = position - 1
    position = find(digits, '1', position + 1, true)
  end
  if n == most then return found end
  position = find(digits, '1', 1, true)
  while position and position < turn and n < most do
    n = n + 1
    found[n] = position - 1
    position = find(digits, '1', position + 1, true)
  end
  return found
end

-- Learns how many messages the declared ones of these streams have, and their cursors, by one look.
local function know_streams(q, ready, need)
  local fields, numbers = nil, nil
  for at = 1, min(need, #ready) do
    local number = ready[at]
    if not q.lengths[number] then
      local key = Messages.stream_key(q, spell(number))
      -- Streams are taken in their order, so behind one that is not declared none is taken.
      if not key then break end
      if not fields then fields, numbers = {nil, nil}, {nil} end
      local n = #numbers
      fields[2 * n + 1], fields[2 * n + 2], numbers[n + 1] = key, 'h' .. spell(number), number
    end
  end
  if not fields then return end
  local found = call('HMGET', q.keys[META], unpack(fields)) -- at most 2,000: two for each message
  for at = 1, #numbers do
    local number = numbers[at]
    q.lengths[number], q.cursors[number] = (found[2 * at - 1] or 0) + 0, found[2 * at]
  end
end

-- The entries that a stream should have are not there: somebody deleted them by hand.
local function note_vanished(q, number)
  local lost = q.lengths[number]
  q.shared = q.shared - lost
  State.count_up(q, 'vanished', lost)
  -- Nobody knows whose they were: all accounts are looked at, once the streams are empty.
  q.walk = Due.walk_for_vanished(q.walk)
  State.put_odd(q, 'walk', q.walk)
  q.more = true
end

-- A stream has more than is counted: another program added entries. Each of them counts from when one is seen beyond
-- the count, so it is delivered, and hides no message behind it.
function Streams.count_foreign(q, number)
  q.shared = q.shared + number
  State.count_up(q, 'adopted', number)
end

-- Takes up to `share` entries of one stream. Returns how many.
local function take_of_stream(q, number, share, groups)
  local from = '(' .. (q.cursors[number] or '0-0')
  local key = Messages.stream_key(q, spelled[number] or spell(number))
  local counted = q.lengths[number]
  local most = share < counted and share or share + 1 -- one more than is counted, if there is one
  local entries = call('XRANGE', key, from, '+', 'COUNT', spelled[most] or spell(most))
  local size, left = #entries, 0
  if size > counted then
    Streams.count_foreign(q, size - counted)
    counted = size
  end
  -- The one more was only asked for to see whether there is any.
  if size > share then entries[size], size = nil, share end
  if size > 0 then
    groups[#groups + 1], groups[#groups + 2] = number, entries
    q.cursors[number] = entries[size][1]
    left, q.shared = counted - size, q.shared - size
  else
    note_vanished(q, number)
  end
  q.lengths[number], q.touched[number] = left, key
  if left <= 0 then Streams.mark(q, number, 48) end -- '0'
  return size
end

-- Passes over the streams that are next and owe a turn.
local function skip_owed(q)
  repeat
    local number = Streams.ready_streams(q, 1)[1]
    local from, upto = find(q.owed, ',' .. (number or '') .. ',', 1, true)
    if not from or not number then return end
    q.owed, q.next_stream = sub(q.owed, 1, from) .. sub(q.owed, upto + 1), number + 1
    State.put_odd(q, 'owed', q.owed ~= ',' and q.owed or '')
  until q.owed == ','
end

-- Takes up to `need` entries, as a list of stream, entries, and how many they are. The taken ones are gone from there.
function Streams.take_entries(q, need)
  if q.owed then skip_owed(q) end
  local ready = Streams.ready_streams(q, need == 1 and 1 or 9e9)
  local groups = {nil, nil}
  local found = 0
  know_streams(q, ready, need)
  -- Streams that were read are of the right type, so `Types.look_at_all` need not ask them again.
  q.has_taken = true
  for at = 1, #ready do
    if found >= need then break end
    local number = ready[at]
    local left = q.lengths[number]
    if not left then
      q.missed = number
      break
    end
    -- The messages that are still wanted are split evenly among the streams that are left. A stream with fewer leaves
    -- more to the next ones.
    local share = need == 1 and 1 or max(1, min(left, floor((need - found) / (#ready - at + 1)), MOST_ENTRIES))
    found = found + take_of_stream(q, number, share, groups)
    q.next_stream = number + 1
  end
  return groups, found
end

-- The stream that a reader prefers gives one message out of its turn, and owes that turn: it is passed over once when
-- it is next, so it delivers no more than others. `owed` has the numbers of those that owe one, ",3,17,". Returns as
-- `take_entries` does.
function Streams.take_preferred(q, number)
  local groups, owed = {}, q.owed or ','
  local is_ready = byte(Streams.ready(q), number + 1) == 49 -- '1'
  if not is_ready or Streams.ready_streams(q, 1)[1] == number or find(owed, ',' .. number .. ',', 1, true) then
    return groups, 0
  end
  know_streams(q, {number}, 1)
  if not q.lengths[number] then
    q.missed = number
    return groups, 0
  end
  q.owed = owed .. number .. ','
  State.put_odd(q, 'owed', q.owed)
  return groups, take_of_stream(q, number, 1, groups)
end

function Streams.save_streams(q)
  local lengths, cursors = q.lengths, q.cursors
  for number, key in pairs(q.touched) do
    local length, cursor = lengths[number], cursors[number]
    State.put(q, key, spelled[length] or spell(length))
    if cursor then State.put(q, 'h' .. (spelled[number] or spell(number)), cursor) end
  end
end
