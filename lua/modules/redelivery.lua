-- The redelivery queue, the sorted set `returned`: messages that wait for another delivery beside the new ones of a stream. A
-- score is stream number * 2^40 + position. The position is the number in the message's id, so that it stands where it stood;
-- or the next number of the queue, for one that has to stand behind all that came so far; or 0, ahead of all.
--- @use keys, lists, notifications, streams
local POSITIONS = 1099511627776

-- Returns the position behind all messages that came so far. `q.positions_from` is the queue's count of messages.
local function next_position(q)
  q.positions_taken = q.positions_taken + 1
  return q.positions_from + q.positions_taken
end

-- Writes down how many positions were taken. They are numbers of messages that were never written, so they are also counted
-- as gone and as skipped.
local function save_positions(q)
  if q.positions_taken == 0 then return end
  for _, counter in ipairs({'n', 'gone', 'skipped'}) do redis.call('HINCRBY', q.meta, counter, q.positions_taken) end
end

-- Returns the streams of a shard, "3,17", by their numbers. A number beyond the queue's streams, which may have become fewer, is
-- another one of them. If something else wrote the text and it has no number, any stream will do.
local function list_streams(q, shard)
  local numbers, size, most = q.stream_lists[shard], 0, tostring(q.stream_count)
  if numbers then return numbers end
  local digits = #most
  numbers = {}
  for number in string.gmatch(shard, '%d+') do
    local is_there = #number < digits or #number == digits and number < most
    size = size + 1
    numbers[size] = is_there and number or tostring(number % q.stream_count)
  end
  if size == 0 then numbers[1] = '0' end
  q.stream_lists[shard] = numbers
  return numbers
end

-- Reads into `lengths` the undelivered messages of the streams that these messages may be delivered from, by stream number: of
-- each the one that it stays in, or those of its shard if its body lies apart. Those that this call has loaded are left out:
-- `q.lengths` has them.
local function read_other_lengths(q, items, lengths)
  local loaded, missing = q.lengths, {}
  for _, item in ipairs(items) do
    local number = item.stream or item.place
    for _, each in ipairs(number == 'd' and list_streams(q, item.shard) or {number}) do
      if not loaded[each] and not lengths[each] then lengths[each], missing[#missing + 1] = 0, each end
    end
  end
  act_in_parts(missing, function(from, upto)
    local found = redis.call('HMGET', q.lens, unpack(missing, from, upto))
    for at = from, upto do lengths[missing[at]] = tonumber(found[at - from + 1] or '0') end
  end)
end

-- Returns the one of a shard's streams that has the fewest undelivered messages, and of several the first; nil if something
-- that must be known for that is not.
local function pick_shortest(shard, loaded, lengths)
  local best, fewest = nil, 9e15
  for number in string.gmatch(shard, '%d+') do
    local length = loaded[number] or lengths[number]
    if not length then return nil end
    if length < fewest then best, fewest = number, length end
    if length == 0 then break end
  end
  return best
end

-- Returns the stream that a message waits for its delivery in. `items` are all that this call has; what must be known of
-- streams and is not is read for all of them at once.
local function choose_waiting(q, item, items, lengths)
  local loaded, number = q.lengths, item.stream or item.place
  if number == 'd' then number = pick_shortest(item.shard, loaded, lengths) end
  if number and (loaded[number] or lengths[number]) then return number end
  read_other_lengths(q, items, lengths)
  return number or pick_shortest(table.concat(list_streams(q, item.shard), ','), loaded, lengths)
end

-- Writes down the lengths of streams that changed and that this call has not loaded: its end writes those that it has.
local function save_lengths(q, changed, lengths)
  local fields = {}
  for number in pairs(changed) do fields[#fields + 1], fields[#fields + 2] = number, lengths[number] end
  act_in_parts(fields, function(from, upto) redis.call('HSET', q.lens, unpack(fields, from, upto)) end)
end

-- Puts a message that is admitted into the queue of a stream that this call has loaded, without a table for it: of the one that
-- its shard key was handed a message out of if that is empty now and so as short as any, else of the shortest of its shard. What
-- is to be written is noted in `q.enqueued`. Returns false if something must be known first: `enqueue_messages` finds it out.
local function enqueue_admitted(q, handle, shard, stream)
  local loaded, scores, number = q.lengths, q.enqueued, stream
  if loaded[number] ~= 0 or not string.find(',' .. shard .. ',', ',' .. number .. ',', 1, true) then
    number = pick_shortest(shard, loaded, loaded)
    if not number then return false end
  end
  local length, size = loaded[number], #scores
  if length == 0 then q.woken[#q.woken + 1] = number end
  loaded[number] = length + 1
  q.positions_taken = q.positions_taken + 1
  scores[size + 1], scores[size + 2] = number * POSITIONS + q.positions_from + q.positions_taken, handle
  notify_reader(q, number)
  return true
end

-- Writes down what `enqueue_admitted` noted.
local function save_enqueued(q)
  local scores, woken = q.enqueued, {}
  for at, number in ipairs(q.woken) do woken[2 * at - 1], woken[2 * at] = number, number end
  act_in_parts(scores, function(from, upto) redis.call('ZADD', q.redelivery, unpack(scores, from, upto)) end)
  act_in_parts(woken, function(from, upto) redis.call('ZADD', q.ready, unpack(woken, from, upto)) end)
  q.enqueued, q.woken = {}, {}
end

-- Puts messages into the redelivery queue, each of the shortest of its streams. An item has a handle, a place and a shard; the
-- stream that it stays in, if any; and a position, or none for behind all that came so far.
local function enqueue_messages(q, items)
  if #items == 0 then return end
  local loaded, lengths, changed, scores, woken = q.lengths, {}, {}, {}, {}
  local is_awaited = q.waiting_until > q.now
  for at, item in ipairs(items) do
    local number = choose_waiting(q, item, items, lengths)
    local length = loaded[number]
    if length then
      loaded[number] = length + 1
    else
      length = lengths[number]
      lengths[number], changed[number] = length + 1, true
    end
    if length == 0 then woken[#woken + 1], woken[#woken + 2] = number, number end
    scores[2 * at - 1], scores[2 * at] = number * POSITIONS + (item.position or next_position(q)), item.handle
    if is_awaited then notify_reader(q, number) end
  end
  act_in_parts(scores, function(from, upto) redis.call('ZADD', q.redelivery, unpack(scores, from, upto)) end)
  save_lengths(q, changed, lengths)
  act_in_parts(woken, function(from, upto) redis.call('ZADD', q.ready, unpack(woken, from, upto)) end)
end

-- Says whether one message was written before another.
local function is_before(one, other)
  if one.ms ~= other.ms then return one.ms < other.ms end
  return one.number < other.number
end

-- Sorts messages by the numbers in their ids alone, which takes no call for each two that are compared. All numbers are given
-- once but those of the legacy stream; with these the whole ids are compared.
local function sort_by_number(items)
  local numbers, by_number = {}, {}
  for at, item in ipairs(items) do
    local number = item.number
    if item.place == 'l' or by_number[number] then return table.sort(items, is_before) end
    numbers[at], by_number[number] = number, item
  end
  table.sort(numbers)
  for at, number in ipairs(numbers) do items[at] = by_number[number] end
end

-- Sorts messages that are given back in the order of writing. One that counts in the admission window gets behind all that came
-- so far, so that a shard key whose messages fail again and again has no more turns than others. Any other stands where its
-- number puts it; the numbers of the legacy stream begin anew with each ms, so there the ms counts as well.
local function arrange_messages(items)
  for at = 2, #items do
    if is_before(items[at], items[at - 1]) then
      sort_by_number(items)
      break
    end
  end
  for _, item in ipairs(items) do
    if item.place == 'l' then
      item.stream, item.position = LEGACY, math.min(item.ms % 4294967296 * 256 + math.min(item.number, 255), POSITIONS - 1)
    elseif not item.shard_key then
      local number = item.number
      item.position = number < POSITIONS and number or POSITIONS - 1
    end
  end
end

-- Reads members with scores from `from` to `upto`, at most so many, into `q.queues`: there each stream's queue stands under its
-- least score, as {handle, score, ...}. Returns whether these were all; otherwise the last queue is left out, since it may go on.
local function read_queues(q, from, upto, most)
  local scored = redis.call('ZRANGEBYSCORE', q.redelivery, from, upto, 'WITHSCORES', 'LIMIT', 0, most)
  local queue, last
  for at = 1, #scored, 2 do
    local score = tonumber(scored[at + 1])
    local first = score - score % POSITIONS
    if first ~= last then
      queue, last = {}, first
      q.queues[first] = queue
    end
    queue[#queue + 1], queue[#queue + 2] = scored[at], score
  end
  local are_all = #scored < 2 * most
  if not are_all then q.queues[last] = nil end
  return are_all
end

-- Reads the queues of many streams at once. `take_returned` reads by itself what this has not reached. Streams may have more
-- than their share of what is wanted, so twice as many are read.
local function read_queues_of(q, numbers, most)
  q.queues = {}
  if #numbers < 2 or most < 2 or not q.has_redeliveries then return end
  local first = numbers[1] * POSITIONS
  local are_all = read_queues(q, first, '+inf', 2 * most)
  if are_all and numbers[#numbers] * POSITIONS < first then are_all = read_queues(q, 0, string.format('(%.0f', first), 2 * most) end
  for _, number in ipairs(are_all and numbers or {}) do
    q.queues[number * POSITIONS] = q.queues[number * POSITIONS] or {}
  end
end

-- Returns how far a stream's queue goes before the next new message. What came into the queue later comes after that message.
local function last_before_new(q, number)
  local entry = number ~= LEGACY and redis.call('XRANGE', q.streams[number], '(' .. q.cursors[number], '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '%-(%d+)$')) - 1 or POSITIONS - 1
end

-- Counts the messages in a stream's queue.
local function count_returned(q, number)
  return redis.call('ZCOUNT', q.redelivery, number * POSITIONS, number * POSITIONS + POSITIONS - 1)
end

-- Takes at most so many messages out of a stream's queue into `q.taken`. They count as found until `deliver_taken` looks at
-- all of them at once. In a fair queue they keep their order among the new messages: then it returns the position of the next
-- message that waits in the queue behind these new ones, nil if none does.
local function take_returned(q, number, most)
  check_read_types(q, number)
  local first, upto = number * POSITIONS, POSITIONS - 1
  local queue = q.queues[first]
    or redis.call('ZRANGEBYSCORE', q.redelivery, first, first + upto, 'WITHSCORES', 'LIMIT', 0, most + 1)
  local waiting = #queue / 2
  local size = math.min(waiting, most)
  if waiting > most and not q.queues[first] then waiting = count_returned(q, number) end
  if size == 0 then return end
  local taken, from, removed = q.taken, q.taken_from, q.removed
  local is_mixed, before = q.is_fair and q.lengths[number] > waiting, #taken
  if is_mixed then upto = last_before_new(q, number) end
  for at = 1, 2 * size, 2 do
    if is_mixed and queue[at + 1] - first > upto then break end
    taken[#taken + 1], from[#from + 1], removed[#removed + 1] = queue[at], number, queue[at]
  end
  local count = #taken - before
  q.lengths[number], q.found = q.lengths[number] - count, q.found + count
  if not is_mixed or 2 * count == #queue then return end
  local rest = {}
  for at = 2 * count + 1, #queue do rest[at - 2 * count] = queue[at] end
  q.queues[first] = rest
  return rest[2] - first
end

-- Removes from the queue what was taken out of it.
local function remove_taken(q)
  if #q.removed > 0 then redis.call('ZREM', q.redelivery, unpack(q.removed)) end -- at most 1,000: a read
  q.removed = {}
end

-- Takes a message with this score out of the redelivery queue. Returns the number of the stream that it waited in.
local function dequeue_message(q, handle, score)
  redis.call('ZREM', q.redelivery, handle)
  return string.format('%.0f', math.floor(score / POSITIONS))
end
