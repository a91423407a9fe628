-- What came due: leases that ended and delayed messages. A read takes at most `q.most_due` of each out of their indexes: of each
-- bucket that is due a share, and the rest of those that have more. Where more buckets than that are due, those that were looked at get
-- behind the others, so each comes next at some time, whatever the others hold. A bucket here is {member, start, taken, ...}:
-- its name in `due` (false for bucket 0), the score that it starts with, and how many were taken.
--- @use schedule, leases, attempts, accounts, messages

-- Lists the buckets of an index that may have something due, bucket 0 first. If there may be more than this call looks at, it
-- also returns the last time that `due` has of all that are due.
local function list_due_buckets(q, kind, index)
  local buckets, most, members = {}, 2 * q.most_due, {}
  if redis.call('ZCOUNT', index, '-inf', q.now) > 0 then buckets[1] = {member = false, start = 0, taken = 0} end
  if q.has_due_buckets then members = redis.call('ZRANGEBYSCORE', q.due, '-inf', q.now, 'LIMIT', 0, most) end
  for _, member in ipairs(members) do
    if string.sub(member, 1, 1) == kind then
      buckets[#buckets + 1] = {member = member, start = string.sub(member, 2) * SPAN, taken = 0}
    end
  end
  if #members < most and #buckets <= q.most_due then return buckets, nil end
  q.has_more_due = true
  return buckets, tonumber(redis.call('ZREVRANGEBYSCORE', q.due, q.now, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
end

-- Appends to `found` at most so many more members of a bucket that came due until `upto`, and to `found.times` when. Returns
-- whether there are more. `bucket.next_at` is when the next one comes due.
local function take_due(_, index, bucket, most, found, upto)
  local from, ends = bucket.member and string.format('%.0f', bucket.start) or '-inf', string.format('(%.0f', bucket.start + SPAN)
  local scored = redis.call('ZRANGEBYSCORE', index, from, ends, 'WITHSCORES', 'LIMIT', bucket.taken, most + 1)
  bucket.next_at, bucket.is_seen = nil, true
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

-- Returns the time of the first member of a bucket, from a time on.
local function first_time_in(index, bucket, from)
  local first = redis.call('ZRANGEBYSCORE', index, string.format('%.0f', bucket.start + from),
    string.format('(%.0f', bucket.start + SPAN), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and first - bucket.start
end

-- Does as `take_due` does after a jump of the clock: leases from before it end later, those granted since end as they say, so
-- the ended ones of a bucket are two ranges. A jump may be taken back in any call, so `next_at` is the time in the index,
-- whenever that lease ends, and such a bucket is looked at in every call.
local function take_ended(q, index, bucket, most, found, upto)
  local jump, taken = q.jump, 0
  local before = math.min(upto - jump.by, jump.to - 1)
  bucket.after, bucket.is_seen = bucket.after or {0, 0}, true
  for at, range in ipairs({{0, before}, {jump.to, upto}}) do
    local from, last = string.format('%.0f', bucket.start + range[1]), string.format('%.0f', bucket.start + range[2])
    local ended = {}
    if taken < most then
      ended = redis.call('ZRANGEBYSCORE', index, from, last, 'WITHSCORES', 'LIMIT', bucket.after[at], most - taken)
    end
    for nth = 1, #ended, 2 do
      found[#found + 1] = ended[nth]
      found.times[#found] = ended[nth + 1] - bucket.start + (at == 1 and jump.by or 0)
    end
    bucket.after[at], taken = bucket.after[at] + #ended / 2, taken + #ended / 2
  end
  bucket.next_at = first_time_in(index, bucket, taken == most and 0 or math.max(0, before + 1))
  return taken == most
end

-- Writes down when buckets are due next: when the first of their own is, or behind all that are due now.
local function save_bucket_times(q, buckets, last)
  local moved, emptied = {}, {}
  for _, bucket in ipairs(buckets) do
    local at = bucket.next_at
    if at and last and at <= q.now then at = math.min(math.max(at, last + 0.001), q.now) end
    if bucket.member and at then
      moved[#moved + 1], moved[#moved + 2] = string.format('%.3f', at), bucket.member
    elseif bucket.member and bucket.is_seen then
      emptied[#emptied + 1] = bucket.member
    end
  end
  if #moved > 0 then redis.call('ZADD', q.due, unpack(moved)) end -- at most 258: two for each bucket
  if #emptied > 0 then redis.call('ZREM', q.due, unpack(emptied)) end -- at most 129: one for each bucket
end

-- Takes what is due until `upto` out of an index. Returns the members, and with them in `times` when each came due. Where it
-- took as many as a call may, `q.has_more_due` says that there may be more.
local function take_all_due(q, kind, index, upto)
  local buckets, last = list_due_buckets(q, kind, index)
  local found, full = {times = {}}, buckets
  local take_some = kind == 'l' and q.jump and take_ended or take_due
  while #full > 0 and #found < q.most_due do
    local still_full, share = {}, math.max(1, math.floor((q.most_due - #found) / #full))
    for _, bucket in ipairs(full) do
      if #found < q.most_due and take_some(q, index, bucket, share, found, upto) then still_full[#still_full + 1] = bucket end
    end
    full = still_full
  end
  if #found > 0 then redis.call('ZREM', index, unpack(found)) end -- at most 64
  if #found == q.most_due then q.has_more_due = true end
  save_bucket_times(q, buckets, last)
  return found
end

-- Ends the leases whose time is over at `upto`. Returns their messages, which are to be delivered again. What is stored of them
-- is kept, since this call may deliver them.
local function reap_leases(q, upto, any_cancelled)
  local tokens, items = take_all_due(q, 'l', q.leases, upto), {}
  for at, item in ipairs(end_leases(q, tokens, any_cancelled)) do
    if item then
      item.last_error, item.since, items[#items + 1] = 'lease ended', math.min(q.now, tokens.times[at]), item
      if q.events then note_unsettled(q, 'l', item) end
    end
  end
  q.stored_attempts = save_attempts(q, items)
  return items
end

-- Adds to `items` the delayed messages that are due.
local function promote_messages(q, items)
  local handles = take_all_due(q, 'd', q.delayed, q.now)
  if #handles == 0 then return end
  local known, counted = redis.call('HMGET', q.attempts, unpack(handles)), {} -- at most 64
  local owned = redis.call('HMGET', q.shard_keys, unpack(handles)) -- at most 64
  for at = 1, q.is_fair and #handles or 0 do counted[#counted + 1] = owned[at] or nil end
  if q.is_fair then load_accounts(q, counted) end
  for _, shard_key in ipairs(counted) do count_delayed(q, shard_key, -1) end
  for at, handle in ipairs(handles) do
    local place, ms, number = string.match(handle, '^(%w+):(%d+)%-(%d+)$')
    local _, shard = parse_attempts(known[at])
    items[#items + 1] = {
      handle = handle, place = place, shard = shard, is_known = known[at] and true, shard_key = q.is_fair and owned[at],
      ms = tonumber(ms), number = tonumber(number),
    }
  end
  redis.call('HDEL', q.shard_keys, unpack(handles)) -- at most 64
end
