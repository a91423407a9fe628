-- When the first bucket has something due: 'l' or 'd' and the time. What is known of it is put right on the way, so that a
-- reader wakes for nothing but what it was told of: of 16 buckets at most, then the time may be early.
--- @include lib/span
local function true_head(member)
  local start, index = string.sub(member, 2) * SPAN, string.sub(member, 1, 1) == 'l' and leases or delayed
  local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', start), string.format('(%.0f', start + SPAN),
    'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - start
end
-- While reaping is paused all that is known of buckets is looked at: those of leases may not hide the others.
local function first_delayed()
  local known = redis.call('ZRANGEBYSCORE', due, '-inf', '(9000000000000000', 'WITHSCORES')
  for at = 1, #known, 2 do
    if string.sub(known[at], 1, 1) == 'd' then return tonumber(known[at + 1]) end
  end
  return NEVER
end
bucket_head = function()
  local at = NEVER
  for _ = 1, 16 do
    local known = redis.call('ZRANGEBYSCORE', due, '-inf', '(9000000000000000', 'WITHSCORES', 'LIMIT', 0, 1)
    if not known[1] then return NEVER end
    at = tonumber(known[2])
    if paused_until > 0 and string.sub(known[1], 1, 1) == 'l' then return math.min(math.max(at, paused_until), first_delayed()) end
    local first = true_head(known[1])
    if not first then
      redis.call('ZREM', due, known[1])
    elseif first <= at then
      return first
    else
      redis.call('ZADD', due, string.format('%.0f', first), known[1])
    end
  end
  return at
end
