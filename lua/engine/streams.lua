-- The streams carry messages of shard keys of which nothing else waits, nothing is in flight, and which are not ahead
-- of the virtual time: those are read by round robin. All others wait in `turns`.
local MOST_ENTRIES = 500 -- of one stream in one look

function Streams.goes_to_stream(q, a)
  if a.behind > 0 or a.taken >= q.rules.window then return false end
  local somebody_waits = q.shared + q.behind > 0 and q.rules.window < Rules.WITHOUT_WINDOW
  if somebody_waits and (a.flight > 0 or (a.served or 0) > q.virtual) then return false end
  return not a.ruled or Limits.allowance(a, q.now) > a.taken
end

-- Returns the position of the shard's stream that has the fewest messages, and of several the first. The shard is a
-- text with the position of each stream among those that the call declares: one byte, or two when more than 255 are
-- declared.
local function shortest_stream(q, shard)
  local lengths, is_wide = q.lengths, q.is_wide
  local to, fewest = nil, 9e15
  for at = 1, #shard, is_wide and 2 or 1 do
    local position = byte(shard, at)
    if is_wide then position = position * 256 + byte(shard, at + 1) end
    local length = lengths[position]
    if length < fewest then to, fewest = position, length end
    if length == 0 then break end
  end
  return to
end

-- Appends a message to the shortest stream of its shard. Returns the number of the stream.
function Streams.append(q, id, mark, m)
  local to = shortest_stream(q, m.shard)
  local stream = q.keys[q.fixed + to]
  if m.attributes == '' and m.headers == '' then
    call('XADD', stream, id, mark, m.key, m.tag, m.payload)
  elseif m.headers == '' then
    call('XADD', stream, id, mark, m.key, m.tag, m.payload, 'm', m.attributes)
  elseif m.attributes == '' then
    call('XADD', stream, id, mark, m.key, m.tag, m.payload, 'h', m.headers)
  else
    call('XADD', stream, id, mark, m.key, m.tag, m.payload, 'm', m.attributes, 'h', m.headers)
  end
  local number = match(stream, '%d+$')
  local length = q.lengths[to]
  if length == 0 then q.ready = sub(q.ready, 1, number) .. '1' .. sub(q.ready, number + 2) end
  q.lengths[to], q.grown[to], q.shared = length + 1, true, q.shared + 1
  return number
end

-- The ready streams, in turn from the offset on, and then those before it.
function Streams.ready_streams(q, most)
  local digits, turn, found, n = q.ready, q.next_stream + 1, {}, 0
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
  for at, number in ipairs(ready) do
    if at > need then break end
    if not q.lengths[number] then
      local key = Messages.stream_key(q, number)
      if not key then break end
      if not fields then fields, numbers = {}, {} end
      fields[#fields + 1], fields[#fields + 2], numbers[#numbers + 1] = key, 'h' .. number, number
    end
  end
  if not fields then return end
  local found = call('HMGET', q.keys[META], unpack(fields)) -- at most 2,000: two for each message
  for at, number in ipairs(numbers) do
    q.lengths[number], q.cursors[number] = tonumber(found[2 * at - 1] or 0), found[2 * at]
  end
end

local function leave_stream(q, number)
  q.ready = sub(q.ready, 1, number) .. '0' .. sub(q.ready, number + 2)
end

-- What a stream should have is not there: somebody deleted it by hand.
local function note_vanished(q, number)
  local lost = q.lengths[number]
  q.shared, q.gone, q.vanished = q.shared - lost, q.gone + lost, (q.vanished or 0) + lost
  if q.walk == '' then q.walk = 'v0' end -- somebody's account still says that it has them
  State.put(q, 'walk', q.walk)
  q.more = true
end

-- Takes up to `share` entries of one stream. Returns how many.
local function take_of_stream(q, number, share, groups)
  local from = '(' .. (q.cursors[number] or '0-0')
  local entries = call('XRANGE', Messages.stream_key(q, number), from, '+', 'COUNT', share)
  local size, left = #entries, 0
  if size > 0 then
    groups[#groups + 1], groups[#groups + 2] = number, entries
    q.cursors[number] = entries[size][1]
    left, q.shared = q.lengths[number] - size, q.shared - size
  else
    note_vanished(q, number)
  end
  q.lengths[number], q.touched[number] = left, true
  if left <= 0 then leave_stream(q, number) end
  return size
end

-- Takes up to `need` entries, as a list of stream, entries, and how many they are. What is taken is gone from there.
function Streams.take_entries(q, need)
  if q.owed then Streams.skip_owed(q) end
  local ready, groups, found = Streams.ready_streams(q, need == 1 and 1 or 9e9), {}, 0
  know_streams(q, ready, need)
  for at, number in ipairs(ready) do
    if found >= need then break end
    local left = q.lengths[number]
    if not left then
      q.missed = number
      break
    end
    local share = max(1, min(left, floor((need - found) / (#ready - at + 1)), MOST_ENTRIES))
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
  local is_ready = byte(q.ready, number + 1) == 49 -- '1'
  if not is_ready or Streams.ready_streams(q, 1)[1] == number or find(owed, ',' .. number .. ',', 1, true) then
    return groups, 0
  end
  know_streams(q, {number}, 1)
  if not q.lengths[number] then
    q.missed = number
    return groups, 0
  end
  q.owed = owed .. number .. ','
  State.put(q, 'owed', q.owed)
  return groups, take_of_stream(q, number, 1, groups)
end

-- Passes over the streams that are next and owe a turn.
function Streams.skip_owed(q)
  repeat
    local number = Streams.ready_streams(q, 1)[1]
    local from, upto = find(q.owed, ',' .. (number or '') .. ',', 1, true)
    if not from or not number then return end
    q.owed, q.next_stream = sub(q.owed, 1, from) .. sub(q.owed, upto + 1), number + 1
    State.put(q, 'owed', q.owed)
  until q.owed == ','
end

function Streams.save_streams(q)
  for number in pairs(q.touched) do
    State.put(q, Messages.stream_key(q, number), q.lengths[number])
    if q.cursors[number] then State.put(q, 'h' .. number, q.cursors[number]) end
  end
end
