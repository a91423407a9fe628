-- The two indexes by time: `leases` holds lease tokens by deadline, `delayed` holds handles by due time. A score is
-- bucket * 2^42 + time in ms. Bucket 0 is for what does not count in the admission window, one of 2,045 others is chosen by
-- the shard key, so that a shard key with many messages that come due together delays only itself.
--- @use accounts, keys
local SPAN = 4398046511104
local BUCKETS_SEEN = 16
local MOMENT = 250

-- Counts the members of an index that are not due yet: all of them, less those that are due in bucket 0 and in the buckets
-- that `q.due` names. `kind` is the index's letter in `q.due`: 'l' for leases, 'd' for delayed. After a jump of the clock,
-- the leases from before the jump end later, so they are counted again.
local function count_not_due(q, index, kind, jump)
  local left, starts = redis.call('ZCOUNT', index, '(' .. q.now, '(9000000000000000'), {0}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.due, '-inf', q.now)) do
    if string.sub(member, 1, 1) == kind then
      local start = string.sub(member, 2) * SPAN
      starts[#starts + 1] = start
      left = left - redis.call('ZCOUNT', index, start, start + q.now)
    end
  end
  for _, start in ipairs(jump and starts or {}) do
    local from, upto = string.format('(%.0f', start + q.now - jump.by), string.format('(%.0f', start + jump.to)
    left = left + redis.call('ZCOUNT', index, from, upto)
  end
  return left
end

-- Notes that something in a bucket comes due at a time, if nothing noted there comes due earlier. `due` has for each bucket
-- but 0 a time before which nothing in it comes due: 'l7' is bucket 7 of the leases, 'd7' is bucket 7 of what is delayed ('r' is
-- for limits: lua/modules/limits.lua). What
-- leaves a bucket leaves that time as it is; whoever looks into the bucket corrects it.
local function note_due(q, kind, bucket, at)
  local member = kind .. bucket
  if not q.due_times[member] or at < q.due_times[member] then q.due_times[member] = at end
end

-- Writes down the times that `note_due` noted.
local function save_due_times(q)
  local list, size, texts = {}, 0, {} -- most of them come due at the same time, and making a number text takes long
  for member, at in pairs(q.due_times) do
    local text = texts[at] or string.format('%.0f', at)
    texts[at], list[size + 1], list[size + 2], size = text, text, member, size + 2
  end
  if #list > 0 then redis.call('ZADD', q.due, 'LT', unpack(list)) end -- at most 2,000: two for each message of a call
  q.due_times = {}
end

-- Returns the score of a lease that ends at another time now, in the bucket where it was. If it is to end sooner than
-- before, that is noted, since `due` may say that nothing in the bucket comes due so soon.
local function move_deadline(q, score, at)
  local ends = score % SPAN
  local start = score - ends
  if start > 0 and at < ends then note_due(q, 'l', string.format('%d', start / SPAN), at) end
  return string.format('%.0f', start + at)
end

-- Returns the bucket of a shard key. 2,045 is the last one: the score after it would be above the sentinels'.
local function bucket_of(shard_key)
  return tonumber(string.sub(redis.sha1hex(shard_key), 1, 8), 16) % 2045 + 1
end

-- Returns the bucket of a shard key, which is computed once in a call.
local function find_bucket(q, shard_key)
  local bucket = q.buckets[shard_key]
  if not bucket then
    bucket = bucket_of(shard_key)
    q.buckets[shard_key] = bucket
  end
  return bucket
end

-- Returns the score of what comes due at a time, and notes that time for its bucket. The shard key is false for what does not
-- count in the admission window.
local function score_at(q, kind, shard_key, at)
  if not shard_key then return string.format('%.0f', at) end
  local bucket = find_bucket(q, shard_key)
  note_due(q, kind, bucket, at)
  return bucket * SPAN + at -- Redis spells a number faster than Lua, and exactly, as a score
end

-- Puts a message, whose body is stored already, into the index of delayed ones. `shard` is where it goes when it is due.
local function delay_message(q, id, shard, shard_key, due)
  local counts, handle = q.mark == 'K', 'd:' .. id
  redis.call('ZADD', q.delayed, score_at(q, 'd', counts and shard_key, due), handle)
  redis.call('HSET', q.attempts, handle, string.format('0@%.0f|%s|', due, shard))
  if counts then redis.call('HSET', q.shard_keys, handle, shard_key) end
end

-- Puts messages that are given back into the index of delayed ones, each due at the time since when it is deliverable.
local function delay_returned(q, items)
  local scores, owned = {}, {}
  for _, item in ipairs(items) do
    scores[#scores + 1], scores[#scores + 2] = score_at(q, 'd', item.shard_key, item.since), item.handle
    if item.shard_key then
      owned[#owned + 1], owned[#owned + 2] = item.handle, item.shard_key
      count_delayed(q, item.shard_key, 1)
    end
  end
  redis.call('ZADD', q.delayed, unpack(scores)) -- at most 500: two for each message of a chunk
  if #owned > 0 then redis.call('HSET', q.shard_keys, unpack(owned)) end -- at most 500: two for each message of a chunk
  save_due_times(q)
end

-- Returns when the first member of bucket 0 comes due, of those that come due at `from` or later; NEVER if there is none.
local function first_of_bucket_0(index, from)
  local first = redis.call('ZRANGEBYSCORE', index, from, string.format('(%.0f', SPAN), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return tonumber(first) or NEVER
end

-- Returns when the first lease of bucket 0 ends. After a jump of the clock, the leases from before it end later.
local function first_lease_end(q)
  local first, jump = first_of_bucket_0(q.leases, '-inf'), q.jump
  if not jump or first >= jump.to then return first end
  return math.min(first + jump.by, jump.ends, first_of_bucket_0(q.leases, jump.to))
end

-- Returns when the first member of a bucket comes due, given its name in `due`; nil if the bucket is empty.
local function first_of_bucket(q, member)
  local start, index = string.sub(member, 2) * SPAN, string.sub(member, 1, 1) == 'l' and q.leases or q.delayed
  local from, upto = string.format('%.0f', start), string.format('(%.0f', start + SPAN)
  local first = redis.call('ZRANGEBYSCORE', index, from, upto, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - start
end

-- Returns when a reader has to look at the buckets again after a jump of the clock. Leases end later than their buckets say
-- then, so the reader looks again after a moment while there are any.
local function next_check_after_jump(q)
  local known, at = redis.call('ZRANGEBYSCORE', q.due, '-inf', '(9000000000000000', 'WITHSCORES'), NEVER
  for nth = 1, #known, 2 do
    local time, is_lease = tonumber(known[nth + 1]), string.sub(known[nth], 1, 1) == 'l'
    at = math.min(at, is_lease and math.max(time, q.now + MOMENT) or time)
    if time > q.now + MOMENT then break end
  end
  return at
end

-- Returns when the first bucket but 0 has something due. What `due` says is corrected on the way, so that a reader does not wake
-- for nothing; after so many buckets the time may be too early.
local function first_of_buckets(q)
  if q.jump then return next_check_after_jump(q) end
  local at = NEVER
  for _ = 1, BUCKETS_SEEN do
    local known = redis.call('ZRANGEBYSCORE', q.due, '-inf', '(9000000000000000', 'WITHSCORES', 'LIMIT', 0, 1)
    if not known[1] then return NEVER end
    at = tonumber(known[2])
    if string.byte(known[1]) == 114 then return at end -- 114 is 'r'
    local first = first_of_bucket(q, known[1])
    if not first then
      redis.call('ZREM', q.due, known[1])
    elseif first <= at then
      return first
    else
      redis.call('ZADD', q.due, string.format('%.0f', first), known[1])
    end
  end
  return at
end

-- Returns in how many ms the next lease ends or the next message is due, -1 if there is neither.
local function ms_to_next_event(q)
  local soonest = math.min(first_lease_end(q), first_of_bucket_0(q.delayed, '-inf'), q.is_fair and first_of_buckets(q) or NEVER)
  return soonest < NEVER and math.max(0, math.ceil(soonest - q.now)) or -1
end
