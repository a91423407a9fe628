-- The queue's streams and what is known of each: `lens` has its undelivered messages under its number and the cursor below
-- the oldest of them under 'h' and its number; `ready` names the streams that have something undelivered.

-- The number under which the legacy stream is ready and has its redelivery queue: after the last stream that there can be.
local LEGACY = '4096'

-- Returns how many undelivered messages each of `count` streams has, from stream number `first` on.
local function read_lengths(q, first, count)
  local lengths = {}
  for from = first, first + count - 1, 1000 do
    local fields = {}
    for number = from, math.min(from + 999, first + count - 1) do fields[#fields + 1] = number end
    for _, length in ipairs(redis.call('HMGET', q.lens, unpack(fields))) do -- at most 1,000
      lengths[#lengths + 1] = tonumber(length or '0')
    end
  end
  return lengths
end

-- Creates a stream if it is missing, with no entry. Every declared key exists at all times: a missing one turns each call
-- into TRYAGAIN while its slot moves. Streams exist empty; other types keep a sentinel that no reader ever sees.
local function create_stream(key)
  if redis.call('EXISTS', key) == 0 then
    redis.call('XADD', key, '0-1', 's', '')
    redis.call('XDEL', key, '0-1')
  end
end

-- Says whether a stream has no entry and no undelivered message.
local function is_empty(q, number, key)
  return redis.call('XLEN', key) == 0 and tonumber(redis.call('HGET', q.lens, number) or '0') <= 0
end

-- Deletes a stream and what is known of it.
local function remove_stream(q, number, key)
  redis.call('DEL', key)
  redis.call('HDEL', q.lens, number, 'h' .. number)
  if redis.call('HDEL', q.lens, 'o' .. number) == 1 then redis.call('HINCRBY', q.meta, 'owed', -1) end
end

-- Reads the undelivered messages of the streams with these numbers.
local function read_undelivered(q, numbers)
  local undelivered = redis.call('HMGET', q.lens, unpack(numbers)) -- at most 4,096: all streams
  for position = 1, #numbers do undelivered[position] = tonumber(undelivered[position] or '0') end
  return undelivered
end

-- Says whether an entry lies below its stream's cursor, so it was delivered. Entries of others have numbers of their own, so the
-- ms in the ids are compared first.
local function is_behind_cursor(q, number, id)
  local ms, count = string.match(id, '^(%d+)%-(%d+)$')
  local cursor_ms, cursor_count = string.match(redis.call('HGET', q.lens, 'h' .. number) or '0-0', '^(%d+)%-(%d+)$')
  ms, cursor_ms = tonumber(ms), tonumber(cursor_ms)
  return ms < cursor_ms or ms == cursor_ms and tonumber(count) <= tonumber(cursor_count)
end

-- Counts one undelivered message of a stream less. A stream that has none left is not ready any more.
local function remove_undelivered(q, number)
  if redis.call('HINCRBY', q.lens, number, -1) <= 0 then redis.call('ZREM', q.ready, number) end
end

-- Writes down what the streams have gained in this call. `first` has by position the number of the first new message of a
-- stream that was empty: such a stream becomes ready, with its cursor just below that message.
local function save_gains(q, gained, first)
  local fields, woken = {'HSET', q.lens}, {'ZADD', q.ready}
  for position in pairs(gained) do
    local number = q.numbers[position]
    fields[#fields + 1], fields[#fields + 2] = number, q.undelivered[position]
    if first[position] then
      woken[#woken + 1], woken[#woken + 2] = number, number
      fields[#fields + 1], fields[#fields + 2] = 'h' .. number, q.prefix .. (first[position] - 1)
    end
  end
  if #woken > 2 then redis.call(unpack(woken)) end -- at most 502: a write
  if #fields > 2 then redis.call(unpack(fields)) end -- at most 1,002: a write
end
