-- What came due: leases that ended and delayed messages. A read takes at most `q.most_due` of them out of their indexes, of each
-- bucket that is due a share, and the rest of those that have more. Where more buckets than that are due, those that were looked
-- at get behind the others, so each comes next at some time, whatever the others hold. A bucket here is {member, number, start,
-- taken, ...}: its name in `due` (false for bucket 0), its number and the score that it starts with, and how many were taken.
--- @use schedule, leases, attempts, accounts, messages, bodies, deliveries, notifications, redelivery
local MANY = 16 -- messages that a read wants
local LIKELY = 64
local FEW_BUCKETS = 8
local MOST_OF_FEW = 64 -- messages

-- Returns a bucket of which nothing is taken yet.
local function new_bucket(member, number)
  return {member = member, number = number, start = number * SPAN, taken = 0, next_at = nil, is_seen = false}
end

-- Loads the accounts that time may have made room for: the end of the round, or of the call, admits what has room.
local function look_at_limited(q, members)
  local names = {}
  for at, member in ipairs(members) do names[at] = string.sub(member, 2) end
  redis.call('ZREM', q.due, unpack(members)) -- at most 65: one for each bucket
  if q.has_limits then
    load_accounts(q, names)
    q.has_looked = true
    return
  end
  for at, name in ipairs(names) do names[at] = 'b:' .. name end
  redis.call('HDEL', q.accounts, unpack(names)) -- at most 65: one for each bucket
end

-- Lists the buckets that may have something due, those of leases apart from those of delayed messages, bucket 0 first. If there
-- may be more than this call looks at, it also returns the last time that `due` has of all that are due.
local function list_due_buckets(q)
  local ended, delayed, members, most = {}, {}, {}, q.most_due + 1
  if q.has_ended then ended[1] = new_bucket(false, 0) end
  if q.has_due then delayed[1] = new_bucket(false, 0) end
  if q.has_due_buckets then members = redis.call('ZRANGEBYSCORE', q.due, '-inf', q.now, 'LIMIT', 0, most) end
  local looks = {}
  for _, member in ipairs(members) do
    local kind = string.byte(member)
    local buckets = kind == 108 and ended or kind == 100 and delayed or looks -- 108 is 'l', 100 is 'd'
    buckets[#buckets + 1] = buckets == looks and member or new_bucket(member, tonumber(string.sub(member, 2)))
  end
  if #looks > 0 then look_at_limited(q, looks) end
  if #members < most and #ended + #delayed <= q.most_due then return ended, delayed, nil end
  q.has_more_due = true
  return ended, delayed, tonumber(redis.call('ZREVRANGEBYSCORE', q.due, q.now, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
end

-- Appends to `found` at most so many more members of a bucket that came due until `upto`, to `found.times` when, and to
-- `found.numbers` the number of the bucket. Returns whether there are more. `bucket.next_at` is when the next one comes due.
local function take_due(_, index, bucket, most, found, upto)
  local start, size, ends = bucket.start, #found, string.format('(%.0f', bucket.start + SPAN)
  local from = start > 0 and start or '-inf'
  local scored = redis.call('ZRANGEBYSCORE', index, from, ends, 'WITHSCORES', 'LIMIT', bucket.taken, most + 1)
  bucket.next_at, bucket.is_seen = nil, true
  for at = 1, #scored, 2 do
    local time = scored[at + 1] - start
    if time > upto or at > 2 * most then
      bucket.next_at = time
      return time <= upto
    end
    size, bucket.taken = size + 1, bucket.taken + 1
    found[size], found.times[size], found.numbers[size] = scored[at], time, bucket.number
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
      local size = #found + 1
      found[size], found.numbers[size] = ended[nth], bucket.number
      found.times[size] = ended[nth + 1] - bucket.start + (at == 1 and jump.by or 0)
    end
    bucket.after[at], taken = bucket.after[at] + #ended / 2, taken + #ended / 2
  end
  bucket.next_at = first_time_in(index, bucket, taken == most and 0 or math.max(0, before + 1))
  return taken == most
end

-- Takes at most so many members out of an index: what came due until `upto` in these buckets.
local function take_all_due(q, index, buckets, most, upto)
  local found, full = {times = {}, numbers = {}}, buckets
  local take_some = index == q.leases and q.jump and take_ended or take_due
  while #full > 0 and #found < most do
    local still_full, share = {}, math.max(1, math.floor((most - #found) / #full))
    for _, bucket in ipairs(full) do
      if #found < most and take_some(q, index, bucket, share, found, upto) then still_full[#still_full + 1] = bucket end
    end
    full = still_full
  end
  if #found > 0 then redis.call('ZREM', index, unpack(found)) end -- at most 64
  if #found == most then q.has_more_due = true end
  return found
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
  if #moved > 0 then redis.call('ZADD', q.due, unpack(moved)) end -- at most 130: two for each bucket
  if #emptied > 0 then redis.call('ZREM', q.due, unpack(emptied)) end -- at most 65: one for each bucket
end

-- Ends leases that are over. Returns their messages, which are to be delivered again. What is stored of them is kept, since
-- this call may deliver them; and so are the buckets of their shard keys.
local function reap_leases(q, tokens)
  local items = {}
  for at, item in ipairs(end_leases(q, tokens, q.any_cancelled)) do
    if item then
      item.last_error, item.since, items[#items + 1] = 'lease ended', math.min(q.now, tokens.times[at]), item
      if item.shard_key and tokens.numbers[at] > 0 then q.buckets[item.shard_key] = tokens.numbers[at] end
      if q.events then note_unsettled(q, 'l', item) end
    end
  end
  q.stored_attempts = save_attempts(q, items)
  return items
end

-- Adds to `items` delayed messages that are due.
local function promote_messages(q, handles, items)
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

-- Takes what came due out of the indexes, and returns the messages.
local function take_back(q)
  local ended, delayed, last = list_due_buckets(q)
  local items = {}
  if q.ended_until then
    local share = #delayed > 0 and math.ceil(q.most_due / 2) or q.most_due
    items = reap_leases(q, take_all_due(q, q.leases, ended, share, q.ended_until))
  end
  promote_messages(q, take_all_due(q, q.delayed, delayed, math.max(1, q.most_due - #items), q.now), items)
  save_bucket_times(q, ended, last)
  save_bucket_times(q, delayed, last)
  return items
end

-- Delivers messages that came due, as many as this call still delivers. They need not pass through the redelivery queue: the
-- streams have given all that they had before them. Returns those that are left, since their stream is not declared, or others
-- come first.
local function deliver_at_once(q, items)
  local chosen, left, reserved, most = {}, {}, {}, q.count - q.found
  for _, item in ipairs(items) do
    local is_declared = item.place == 'd' or item.place ~= 'l' and q.streams[item.place]
    local list = #chosen < most and is_declared and (not q.may_pass or q.may_pass(q, item, reserved)) and chosen or left
    list[#list + 1] = item
  end
  if #chosen == 0 then return left end
  local handles = {}
  arrange_messages(chosen)
  for at, item in ipairs(chosen) do handles[at] = item.handle end
  local texts = read_attempts(q, handles)
  load_bodies(q, handles)
  for at, item in ipairs(chosen) do deliver_again(q, item.handle, nil, texts[at], item.shard) end
  return left
end

-- Puts messages that came due into the queue.
local function put_back(q, items)
  if q.give_back then
    q.give_back(q, items)
  else
    arrange_messages(items)
    enqueue_messages(q, items)
  end
  if q.has_more_due then notify_reader(q, '') end
  q.has_redeliveries = redis.call('ZCARD', q.redelivery) > 1
end

-- Sets the bounds of a read of many that finds something due. It is told of more streams, since it delivers at once only what
-- lies in those that it declared; and what belongs to few shard keys takes little time, so it takes more of that.
local function set_bounds_of_many(q, due_buckets)
  if q.is_fair and q.held == 0 and due_buckets <= FEW_BUCKETS then q.most_due = MOST_OF_FEW end
  if q.width > 0 then q.width = math.max(q.width, LIKELY) end
end

-- Begins a read that finds something due. One of few messages puts that into the queue before it takes any, so that what came
-- due together comes in the order of writing. Returns whether it is one of many, which ends with `deliver_due` instead.
local function begin_due(q, due_buckets)
  local is_many = q.count >= MANY
  if is_many then set_bounds_of_many(q, due_buckets) end
  q.count = math.min(q.count, q.most_due)
  if not is_many then put_back(q, take_back(q)) end
  return is_many
end

-- Takes what came due, once the streams have given what a read of many delivers of them: it delivers what there is room for,
-- and the rest comes into the queue. It takes half of its count at least, also if the streams had enough; but fewer than it
-- delivers, so that the streams are empty at some time. Returns whether anything came that this call may still deliver.
local function deliver_due(q)
  q.most_due = math.min(q.most_due, math.max(q.count - q.found, math.ceil(q.count / 2)))
  local left = deliver_at_once(q, take_back(q))
  put_back(q, left)
  return (#left > 0 or q.has_looked) and q.found < q.count
end
