-- The offset: the number of the stream at which the next read begins. A read goes round: the ready streams from the offset on,
-- the legacy stream after the last one, then those before the offset. `q.streams` has the keys that the call declared by stream
-- number. `q.lengths` and `q.cursors` have what `lens` says of the streams that this call has loaded; `q.stored_lengths` and
-- `q.stored_cursors` have what it said then.
--- @use deliveries, keys, legacy, redelivery, streams
local MOST_TAKEN = 500 -- from one stream at a time; and as many may give nothing in one call

-- Lists the ready streams that come next, at most so many. What was given back to the legacy stream waits while the queue has
-- no legacy stream any more, and must not stop the round.
local function list_ready(q, most)
  local numbers = redis.call('ZRANGEBYSCORE', q.ready, q.offset, '+inf', 'LIMIT', 0, most)
  if numbers[#numbers] == LEGACY and not q.streams[LEGACY] and redis.call('HEXISTS', q.meta, 'legacy_stream') == 0 then
    numbers[#numbers] = nil
  end
  if #numbers < most and not q.is_legacy_done and numbers[#numbers] ~= LEGACY then numbers[#numbers + 1] = LEGACY end
  if #numbers < most and q.offset > 0 then
    local rest = redis.call('ZRANGEBYSCORE', q.ready, 0, '(' .. q.offset, 'LIMIT', 0, most - #numbers)
    for _, number in ipairs(rest) do numbers[#numbers + 1] = number end
  end
  return numbers
end

-- Lists the streams that come next without those that this call has emptied, which leave `ready` only at its end.
local function list_next(q, most)
  local empty, size = {}, 0
  for number, length in pairs(q.lengths) do
    if length <= 0 and (number ~= LEGACY or q.is_legacy_done) then empty[number], size = true, size + 1 end
  end
  if size == 0 then return list_ready(q, most) end
  local numbers = {}
  for _, number in ipairs(list_ready(q, most + size)) do
    if #numbers < most and not empty[number] then numbers[#numbers + 1] = number end
  end
  return numbers
end

-- Reads the lengths and cursors of these streams, unless this call has them.
local function load_streams(q, numbers)
  local fields, missing = {}, {}
  for _, number in ipairs(numbers) do
    if not q.lengths[number] then
      missing[#missing + 1] = number
      fields[#fields + 1], fields[#fields + 2] = number, 'h' .. number
    end
  end
  if #missing == 0 then return end
  local values = redis.call('HMGET', q.lens, unpack(fields)) -- at most 2,000: a read
  for i, number in ipairs(missing) do
    local length, cursor = tonumber(values[2 * i - 1] or '0'), values[2 * i] or '0-0'
    q.lengths[number], q.cursors[number], q.stored_lengths[number], q.stored_cursors[number] = length, cursor, length, cursor
  end
end

-- Takes at most so many new messages of a stream.
local function take_new_of(q, number, most)
  if not q.lengths[number] then load_streams(q, {number}) end
  if q.lengths[number] > 0 then take_new(q, number, most) end
end

-- Takes at most so many messages of a stream: those in its redelivery queue beside the new ones. Where the two are mixed, it
-- takes some of these and of those by turns, as their numbers say.
local function take_any_of(q, number, most)
  if not q.lengths[number] then load_streams(q, {number}) end
  local wanted, before, upto = q.found + most, nil, nil
  repeat
    before = q.found
    if q.has_redeliveries then upto = take_returned(q, number, wanted - q.found) end
    if number == LEGACY then
      take_legacy(q, wanted - q.found)
    elseif q.found < wanted and q.lengths[number] > 0 then
      take_new(q, number, wanted - q.found, upto)
    end
  until not upto or q.found >= wanted or q.found == before
end

-- Takes one message of the stream that a reader prefers, if that stream is not next by itself. The stream is skipped once when
-- it is next, so it delivers no more than others; it has one such debt at most.
local function take_preferred(q, number)
  local first = list_ready(q, 1)[1]
  load_streams(q, {number})
  if not q.streams[number] or q.lengths[number] == 0 or number == first then return end
  check_read_types(q, nil)
  if redis.call('HSETNX', q.lens, 'o' .. number, 1) == 0 then return end
  q.owed = q.owed + 1
  take_any_of(q, number, 1)
end

-- Says whether a stream is skipped, since a reader that preferred it took a message out of order.
local function is_skipped(q, number)
  if q.owed == 0 or redis.call('HDEL', q.lens, 'o' .. number) == 0 then return false end
  q.owed = q.owed - 1
  return true
end

-- Takes from one of these streams after the other its share of what is still wanted, and moves the offset behind each. `take`
-- takes at most so many messages of a stream; `stays`, if it is given, says that the offset stays at a stream. A stream that is
-- not declared ends the round, since no stream is left out, and so do too many streams and messages that gave nothing: then
-- `q.status` says that there may be more. Streams that this call does not need any more are spare: they come next.
local function take_round(q, numbers, take, stays)
  local wanted = q.count - q.found
  local share, over = math.floor(wanted / math.max(1, #numbers)), wanted % math.max(1, #numbers)
  for i, number in ipairs(numbers) do
    if q.found == q.count then
      q.spare[#q.spare + 1] = number
    else
      if not q.streams[number] then q.status = 'MISS' break end
      if q.examined - q.found >= MOST_TAKEN then q.status = 'MORE' break end
      local before = q.found
      local most = math.max(1, math.min(MOST_TAKEN, share + (i <= over and 1 or 0), q.count - q.found))
      if not is_skipped(q, number) then take(q, number, most) end
      if q.found == before then q.examined = q.examined + 1 end -- that was work, too
      q.served = number
      q.offset = stays and stays(q, number) and tonumber(number) or (number + 1) % (LEGACY + 1)
    end
  end
end

-- Lists the ready streams and then others, as many as the caller declares. What comes due may lie in any of them, and is
-- delivered at once only out of one that is declared.
local function list_likely(q)
  local numbers, seen = list_ready(q, math.max(q.width, 4)), {}
  for _, number in ipairs(numbers) do seen[number] = true end
  for number = 0, q.stream_count - 1 do
    if #numbers >= q.width then break end
    local text = tostring(number)
    if not seen[text] then numbers[#numbers + 1] = text end
  end
  return numbers
end

-- Names the streams that come next, so that the caller declares them for its next read. A read of one message has seen them.
local function name_hints(q)
  if q.has_more_due then return table.concat(list_likely(q), ',') end
  local is_wanted = q.found > 0 and q.width > 0
  if q.status ~= 'OK' or is_wanted and (q.count > 1 or not q.served) then
    return table.concat(list_ready(q, math.max(q.width, 4)), ',')
  end
  if not is_wanted then return '' end
  if q.lengths[q.served] > 0 then q.spare[#q.spare + 1] = q.served end
  return table.concat(q.spare, ',')
end
