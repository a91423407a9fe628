-- What is due leaves its index, at most 128 of a kind in one call: of each bucket that is due a share, of those that have more
-- the rest. Where more buckets are due than that, those that were looked at get behind the others; so all have their turn,
-- whatever the others hold.
--- @include lib/span
--- @include lib/ended
local MOST = 128
-- The buckets of a kind that may have something due, bucket 0 first; where there are more, the last time of all these.
local function due_buckets(kind, index)
  local buckets = {}
  if any_due(index) then buckets[1] = {member = false, start = 0, taken = 0} end
  for _, member in ipairs(others_due and redis.call('ZRANGEBYSCORE', due, '-inf', now) or {}) do
    if #buckets > MOST then return buckets, tonumber(redis.call('ZREVRANGEBYSCORE', due, now, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) end
    if string.sub(member, 1, 1) == kind then
      buckets[#buckets + 1] = {member = member, start = string.sub(member, 2) * SPAN, taken = 0}
    end
  end
  return buckets, nil
end
-- So many more of what came due in a bucket until `upto`; `next_at` is then when its next one does. Whether there is more.
local function take_due(index, bucket, most, found, upto)
  local start, ends = string.format('%.0f', bucket.start), string.format('(%.0f', bucket.start + SPAN)
  local scored = redis.call('ZRANGEBYSCORE', index, bucket.member and start or '-inf', ends, 'WITHSCORES', 'LIMIT', bucket.taken, most + 1)
  bucket.next_at, bucket.seen = nil, true
  for at = 1, #scored, 2 do
    local time = scored[at + 1] - bucket.start
    if time > upto or at > 2 * most then
      bucket.next_at = time
      return time <= upto
    end
    found[#found + 1], bucket.taken = scored[at], bucket.taken + 1
    found.times[#found] = time
  end
end
-- When the buckets are due next: by their own first, or behind all that are due now.
local function move_heads(buckets, last)
  local moved_on, emptied = {}, {}
  for _, bucket in ipairs(buckets) do
    local at = bucket.next_at
    if at and last and at <= now then at = math.min(math.max(at, last + 0.001), now) end
    if bucket.member and at then
      moved_on[#moved_on + 1], moved_on[#moved_on + 2] = string.format('%.3f', at), bucket.member
    elseif bucket.member and bucket.seen then
      emptied[#emptied + 1] = bucket.member
    end
  end
  if #moved_on > 0 then redis.call('ZADD', due, unpack(moved_on)) end -- at most 402: two for each bucket
  if #emptied > 0 then redis.call('ZREM', due, unpack(emptied)) end -- at most 201: one for each bucket
end
local function take_all_due(kind, index, upto)
  local buckets, last = due_buckets(kind, index)
  local found, full = {times = {}}, buckets
  local take_some = kind == 'l' and jump and take_ended or take_due
  while #full > 0 and #found < MOST do
    local again_full, share = {}, math.max(1, math.floor((MOST - #found) / #full))
    for _, bucket in ipairs(full) do
      if #found < MOST then
        if take_some(index, bucket, share, found, upto) then again_full[#again_full + 1] = bucket end
      end
    end
    full = again_full
  end
  if #found > 0 then redis.call('ZREM', index, unpack(found)) end -- at most 128
  move_heads(buckets, last)
  return found
end
