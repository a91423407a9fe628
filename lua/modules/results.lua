-- Results: what is kept of messages that are done, and of the progress of those in flight, each until its end. The hash `results`
-- has under a message's id "ends|done at|kind|tag|payload", and under 'p:' and the id "ends|at|done|total|note"; times are in ms.
-- A kind is 'v' for a value, or the reason why there is none. `result_ends` has the same fields by end. `meta` counts the fields
-- ('result_count') and what they take ('result_bytes'): that is bounded, so a call loads both and saves them once.
local FIELD_BYTES = 200
local DEFAULT_BYTES = 67108864
local MOST_FORGOTTEN = 200

-- Returns how many bytes a field counts for: its text, its name twice, and what Redis takes for an entry of each index.
local function size_of(field, text)
  return #text + 2 * #field + FIELD_BYTES
end

-- Begins a call that changes results.
local function begin_results(q)
  local max_bytes, bytes, count = unpack( -- at most 3: the fields
    redis.call('HMGET', q.meta, 'max_result_bytes', 'result_bytes', 'result_count'))
  q.max_bytes, q.bytes, q.count = tonumber(max_bytes or DEFAULT_BYTES), tonumber(bytes or '0'), tonumber(count or '0')
end

-- Forgets a field that says this.
local function forget_result(q, field, text)
  redis.call('HDEL', q.results, field)
  redis.call('ZREM', q.result_ends, field)
  q.bytes, q.count = math.max(0, q.bytes - size_of(field, text)), math.max(0, q.count - 1)
end

-- Forgets some of what has ended. Returns whether there may be more.
local function forget_ended_results(q)
  local ended = redis.call('ZRANGEBYSCORE', q.result_ends, '-inf', q.now, 'LIMIT', 0, MOST_FORGOTTEN)
  local texts = #ended > 0 and redis.call('HMGET', q.results, unpack(ended)) or {} -- at most 200
  for at, field in ipairs(ended) do forget_result(q, field, texts[at] or '') end
  return #ended == MOST_FORGOTTEN
end

-- Keeps a text in a field, which says `known` so far, or false. Returns whether there was room.
local function keep_result(q, field, ends, text, known)
  local bytes = q.bytes + size_of(field, text) - (known and size_of(field, known) or 0)
  if bytes > q.max_bytes then return false end
  redis.call('HSET', q.results, field, text)
  redis.call('ZADD', q.result_ends, ends, field)
  q.bytes, q.count = bytes, q.count + (known and 0 or 1)
  return true
end

-- Writes down what changed.
local function save_results(q)
  redis.call('HSET', q.meta, 'result_bytes', string.format('%.0f', q.bytes), 'result_count', q.count)
end

-- Returns the text of a field until its end has come, else false.
local function read_result(q, field)
  local text = redis.call('HGET', q.results, field)
  return text and tonumber(string.match(text, '^%d+')) > q.now and text
end

-- Returns what a status says of a result: the same without the payload, and the payload's size instead.
local function spell_done(text)
  local head, payload = string.match(text, '^(%d+|%d+|%a+|)[^|]*|?(.*)$')
  return head .. #payload
end
