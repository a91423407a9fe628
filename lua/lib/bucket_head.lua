-- When the first of a kind of buckets has something due. What is known of it is put right on the way, so that a reader wakes
-- for nothing but what it was told of: of 16 buckets at most, then the time may be early.
--- @include lib/shift
bucket_head = function(kind, index)
  local from, upto, at = string.format('%.0f', SHIFT[kind]), string.format('(%.0f', SHIFT[kind] + SPAN), NEVER
  for _ = 1, 16 do
    local known = redis.call('ZRANGEBYSCORE', due, from, upto, 'WITHSCORES', 'LIMIT', 0, 1)
    if not known[1] then return NEVER end
    local start = string.sub(known[1], 2) * SPAN
    local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', start), string.format('(%.0f', start + SPAN),
      'WITHSCORES', 'LIMIT', 0, 1)[2]
    at = known[2] - SHIFT[kind]
    if not first then
      redis.call('ZREM', due, known[1])
    elseif first - start <= at then
      return first - start
    else
      redis.call('ZADD', due, string.format('%.0f', first - start + SHIFT[kind]), known[1])
    end
  end
  return at
end
