-- After a jump of the server's clock leases that were granted before it end as much later as it went ahead (lib/jump), those
-- granted since as they say: the ended ones of a bucket are two ranges.
local function first_of(index, bucket, from, upto)
  local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', bucket.start + from),
    string.format('(%.0f', bucket.start + upto), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - bucket.start
end
-- As `take_due`. A jump may be taken back at any look, so a bucket is looked at again after a second at most.
local function take_ended(index, bucket, most, found, upto)
  local before = math.min(upto - jump.by, jump.to - 1)
  local taken = 0
  bucket.after, bucket.next_at, bucket.seen = bucket.after or {0, 0}, nil, true
  for at, range in ipairs({{0, before}, {jump.to, upto}}) do
    local from, last = string.format('%.0f', bucket.start + range[1]), string.format('%.0f', bucket.start + range[2])
    local ended = taken < most and redis.call('ZRANGEBYSCORE', index, from, last, 'WITHSCORES', 'LIMIT', bucket.after[at], most - taken) or {}
    for nth = 1, #ended, 2 do
      found[#found + 1] = ended[nth]
      found.times[#found] = ended[nth + 1] - bucket.start + (at == 1 and jump.by or 0)
    end
    bucket.after[at], taken = bucket.after[at] + #ended / 2, taken + #ended / 2
  end
  if taken == most then
    bucket.next_at = upto
    return
  end
  local old, new = first_of(index, bucket, before + 1, jump.to), first_of(index, bucket, math.max(jump.to, upto + 1), SPAN)
  if old or new then bucket.next_at = math.min(old and old + jump.by or new, new or 9e15, now + 1000) end
end
