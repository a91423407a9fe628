-- Limits of the whole queue, in meta: it is paused until `paused` (ms), it has at most `total_in_flight` messages in flight, and
-- delivers at most `total_rate` in a second (`total_burst` at once). `total_full_at` is when its bucket is full again
-- (lua/modules/limits.lua says how that works). While it is paused, `asleep` says until when readers may be blocked, and not
-- `waiting`: so writes wake nobody.
--- @use keys, limits, notifications, schedule, time

-- Returns when the first lease ends of those in buckets whose time in `due` is over. Leases that were acked leave such a time behind,
-- and a read that may deliver nothing gets no further; so this corrects it.
local function next_end_of_passed(q)
  local ends = NEVER
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.due, '-inf', q.now)) do
    local first = string.sub(member, 1, 1) == 'l' and (first_of_bucket(q, member) or NEVER)
    if first == NEVER then
      redis.call('ZREM', q.due, member)
    elseif first and first > q.now then
      redis.call('ZADD', q.due, string.format('%.0f', first), member)
    elseif first then
      local start = string.sub(member, 2) * SPAN
      local from, upto = string.format('(%.0f', start + q.now), string.format('(%.0f', start + SPAN)
      local score = redis.call('ZRANGEBYSCORE', q.leases, from, upto, 'WITHSCORES', 'LIMIT', 0, 1)[2]
      first = score and score - start or NEVER
    end
    ends = math.min(ends, first or NEVER)
  end
  return ends
end

-- Returns how many messages may be delivered under the cap of what is in flight; and if there are none, in how many ms a lease may
-- end. Leases from before a jump of the clock end later than they say, so the reader looks again after a moment.
local function find_total_room(q, cap, jump)
  if cap == 0 then return 9e15, -1 end
  jump = read_jump(jump, q.now)
  local room = cap - count_not_due(q, q.leases, 'l', jump)
  if room > 0 then return room, -1 end
  local next_due = redis.call('ZRANGEBYSCORE', q.due, '(' .. q.now, '(9000000000000000', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local ends = math.min(first_of_bucket_0(q.leases, '(' .. q.now), next_end_of_passed(q), tonumber(next_due) or NEVER)
  if jump then ends = math.min(ends, q.now + MOMENT) end
  return room, ends < NEVER and ends - q.now or -1
end

-- Returns how many tokens the bucket of the queue has, and in how many ms it will have one.
local function find_tokens(q, rate, burst, full_at)
  local total = read_bucket(q, rate, burst, full_at)
  q.total = total
  if full_at and total.full_at < tonumber(full_at) then redis.call('HSET', q.meta, 'total_full_at', string.format('%.3f', total.full_at)) end
  return count_tokens(q, total), math.ceil(total.full_at - (total.burst - 1) * total.interval - q.now)
end

-- Notes that the caller may be blocked while the queue is paused.
local function let_sleep(q, asleep, blocks)
  local until_when = q.now + 2 * blocks
  clear_notifications(q, 0)
  if blocks > 0 and tonumber(asleep or '0') < until_when then redis.call('HSET', q.meta, 'asleep', until_when) end
end

-- Begins a read. Returns nil, and the read delivers no more than it may; or, if it may deliver nothing, in how many ms it should
-- look again, -1 if time alone changes nothing.
local function begin_total(q, jump, blocks)
  local paused, asleep, cap, rate, burst, full_at = unpack( -- at most 6: the fields
    redis.call('HMGET', q.meta, 'paused', 'asleep', 'total_in_flight', 'total_rate', 'total_burst', 'total_full_at'))
  paused = tonumber(paused or '0')
  if paused > q.now then
    let_sleep(q, asleep, blocks)
    return paused < NEVER and math.ceil(paused - q.now) or -1
  end
  local room, wait = find_total_room(q, tonumber(cap or '0'), jump or '')
  if (rate or '0') ~= '0' then
    local tokens, next_token = find_tokens(q, tonumber(rate), tonumber(burst or '0'), full_at)
    if room > 0 and tokens < 1 then wait = next_token end
    room = math.min(room, tokens)
  end
  if room < 1 then
    clear_notifications(q, blocks)
    return wait
  end
  q.count = math.min(q.count, room)
end

-- Counts what was delivered in the bucket of the queue. Others who are blocked learn when the next token is there.
local function save_total(q)
  local total = q.total
  if q.found == 0 then return end
  total.full_at = full_since(q, total) + q.found * total.interval
  redis.call('HSET', q.meta, 'total_full_at', string.format('%.3f', total.full_at))
  if count_tokens(q, total) < 1 then notify_reader(q, '') end
end
