-- The members of an index by time in the order of their times, over several buckets. Each bucket is in order by itself, so the
-- first of all is the first of one of them. Members of the same time are in the order of their buckets.
--- @use schedule
local CHUNK = 8
local MOST_TIES = 1000

-- Says whether one text comes after another by its bytes, as Redis sorts members. Lua would compare them by the server's locale.
local function is_after(one, other)
  for at = 1, math.min(#one, #other) do
    local its, others = string.byte(one, at), string.byte(other, at)
    if its ~= others then return its > others end
  end
  return #one > #other
end

-- Counts the members of the same time that were passed, which stand before or at this one. It may be gone.
local function count_passed(index, score, member)
  local passed = 0
  for _, each in ipairs(redis.call('ZRANGEBYSCORE', index, score, score, 'LIMIT', 0, MOST_TIES)) do
    if is_after(each, member) then break end
    passed = passed + 1
  end
  return passed
end

-- Opens a bucket behind a point, {time, bucket, member}, up to a last time; the times are nil for all of it.
local function open_bucket(index, number, after)
  local start = number * SPAN
  local bucket = {
    number = number, start = start, from = start > 0 and string.format('%.0f', start) or '-inf',
    upto = after.last and string.format('%.0f', start + after.last) or string.format('(%.0f', start + SPAN), offset = 0, size = 1, rows = {}, at = 1, time = nil,
  }
  if after.time then
    local score = string.format('%.0f', start + after.time)
    bucket.from = number < after.bucket and '(' .. score or score
    if number == after.bucket then bucket.offset = count_passed(index, score, after.member) end
  end
  return bucket
end

-- Goes on to the next member of a bucket. Returns false if there is none. Only the first is read at first: most buckets have
-- nothing that comes soon.
local function advance_bucket(index, bucket)
  bucket.at = bucket.at + 2
  if not bucket.rows[bucket.at] then
    bucket.rows = redis.call('ZRANGEBYSCORE', index, bucket.from, bucket.upto, 'WITHSCORES', 'LIMIT', bucket.offset, bucket.size)
    bucket.offset, bucket.size, bucket.at = bucket.offset + bucket.size, CHUNK, 1
  end
  local score = bucket.rows[bucket.at + 1]
  bucket.time = score and score - bucket.start
  return bucket.time ~= nil
end

-- Says whether the next member of one bucket comes before that of another.
local function comes_before(one, other)
  if one.time ~= other.time then return one.time < other.time end
  return one.number < other.number
end

-- Puts a bucket among others that are in the order of their next members.
local function insert_bucket(heads, bucket)
  local low, high = 1, #heads + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if comes_before(heads[middle], bucket) then low = middle + 1 else high = middle end
  end
  table.insert(heads, low, bucket)
end

-- Lists the members of these buckets that come first, at most so many, as {member, time, bucket, ...}.
local function list_soonest(index, numbers, after, most)
  local heads, found = {}, {}
  for _, number in ipairs(numbers) do
    local bucket = open_bucket(index, number, after)
    if advance_bucket(index, bucket) then heads[#heads + 1] = bucket end
  end
  table.sort(heads, comes_before)
  while heads[1] and #found < 3 * most do
    local bucket, size = table.remove(heads, 1), #found
    found[size + 1], found[size + 2], found[size + 3] = bucket.rows[bucket.at], bucket.time, bucket.number
    if advance_bucket(index, bucket) then insert_bucket(heads, bucket) end
  end
  return found
end
