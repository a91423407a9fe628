-- When the first bucket has something due. What is known of it is put right on the way, so that a reader wakes for nothing but
-- what it was told of: of 16 buckets at most, then the time may be early. After a jump of the clock leases end later than their
-- buckets say: while there are any the reader looks again after a moment.
--- @include lib/span
local MOMENT = 250
local function true_head(member)
  local start, index = string.sub(member, 2) * SPAN, string.sub(member, 1, 1) == 'l' and leases or delayed
  local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', start), string.format('(%.0f', start + SPAN),
    'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - start
end
local function head_after_jump()
  local known, at = redis.call('ZRANGEBYSCORE', due, '-inf', '(9000000000000000', 'WITHSCORES'), NEVER
  for nth = 1, #known, 2 do
    local time, is_lease = tonumber(known[nth + 1]), string.sub(known[nth], 1, 1) == 'l'
    at = math.min(at, is_lease and math.max(time, now + MOMENT) or time)
    if time > now + MOMENT then break end
  end
  return at
end
bucket_head = function()
  if jump then return head_after_jump() end
  local at = NEVER
  for _ = 1, 16 do
    local known = redis.call('ZRANGEBYSCORE', due, '-inf', '(9000000000000000', 'WITHSCORES', 'LIMIT', 0, 1)
    if not known[1] then return NEVER end
    at = tonumber(known[2])
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
