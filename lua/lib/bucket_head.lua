-- When the first bucket has something due. What is known of it is put right on the way, so that a reader wakes for nothing but
-- what it was told of: of 16 buckets at most, then the time may be early. After a jump of the clock what is known of a bucket of
-- leases says when to look again (lib/ended), and stays.
--- @include lib/span
local function true_head(member)
  local start, index = string.sub(member, 2) * SPAN, string.sub(member, 1, 1) == 'l' and leases or delayed
  local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', start), string.format('(%.0f', start + SPAN),
    'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - start
end
bucket_head = function()
  local at = NEVER
  for _ = 1, 16 do
    local known = redis.call('ZRANGEBYSCORE', due, '-inf', '(9000000000000000', 'WITHSCORES', 'LIMIT', 0, 1)
    if not known[1] then return NEVER end
    at = tonumber(known[2])
    if jump and string.sub(known[1], 1, 1) == 'l' then return at end
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
