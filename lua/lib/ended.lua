-- After a jump of the server's clock leases that were granted before it end as much later as it went ahead (lib/jump), those
-- granted since as they say: the ended ones of a bucket are two ranges.
local function first_of(index, bucket, from)
  local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', bucket.start + from),
    string.format('(%.0f', bucket.start + SPAN), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - bucket.start
end
-- As `take_due`. A jump may be taken back at any look, so `next_at` is the time in the index, whenever that lease ends: such a
-- bucket is looked at in every call (but see lib/bucket_head).
local function take_ended(index, bucket, most, found, upto)
  local before, taken = math.min(upto - jump.by, jump.to - 1), 0
  bucket.after, bucket.seen = bucket.after or {0, 0}, true
  for at, range in ipairs({{0, before}, {jump.to, upto}}) do
    local from, last = string.format('%.0f', bucket.start + range[1]), string.format('%.0f', bucket.start + range[2])
    local ended = taken < most and redis.call('ZRANGEBYSCORE', index, from, last, 'WITHSCORES', 'LIMIT', bucket.after[at], most - taken) or {}
    for nth = 1, #ended, 2 do
      found[#found + 1] = ended[nth]
      found.times[#found] = ended[nth + 1] - bucket.start + (at == 1 and jump.by or 0)
    end
    bucket.after[at], taken = bucket.after[at] + #ended / 2, taken + #ended / 2
  end
  bucket.next_at = first_of(index, bucket, taken == most and 0 or math.max(0, before + 1))
  return taken == most
end
