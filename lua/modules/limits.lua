-- Limits of shard keys: how many of their messages may be in flight, how many may be delivered in a second, and whether any may
-- be. Those of every shard key are settings of the queue. The hash `accounts` has the own ones of a shard key (or parent) under
-- 'l:' and its name, "cap rate burst until": '-' is as the queue says, 0 no limit; it is paused until that time in ms. A rate is a
-- bucket of tokens (GCRA, ITU-T I.371): under 'b:' is the time in ms at which the bucket is full again; no field is a full one.
--
-- What may not be delivered is held in the overflow, where it is in nobody's way. When time alone will change that, `due` has
-- 'r' and the name at that time: the read that finds it there looks at the account again.
--- @use accounts, keys, lists, notifications
local LATE = 50 -- ms by which a token may be fetched late without being lost

-- Returns a bucket, given what is stored of when it is full again. No bucket is emptier than empty: one whose rate was raised, or
-- whose time is from before the clock was set back, would else give nothing until then.
local function read_bucket(q, rate, burst, full_at)
  local interval = rate > 0 and 1000 / rate or 0
  burst = burst > 0 and burst or math.max(1, math.ceil(rate))
  return {interval = interval, burst = burst, full_at = math.min(tonumber(full_at or q.now), q.now + burst * interval)}
end

-- Returns the limits that a shard key has, given what is stored of them; false if it has none.
local function parse_limits(q, text, full_at)
  local cap, rate, burst, paused_until = string.match(text or '- - - 0', '^(%S+) (%S+) (%S+) (%d+)$')
  if rate == '-' or not rate then rate, burst = q.rate, q.burst end
  rate, burst = tonumber(rate), tonumber(burst) or 0
  if not text and rate == 0 and not full_at then return false end
  local limits = read_bucket(q, rate, burst, full_at)
  limits.cap, limits.paused_until, limits.stored = tonumber(cap), tonumber(paused_until or '0'), full_at
  return limits
end

-- Loads the limits of accounts that were just opened.
local function load_limits(q, names)
  local fields = {}
  for at, name in ipairs(names) do fields[2 * at - 1], fields[2 * at] = 'l:' .. name, 'b:' .. name end
  local texts = redis.call('HMGET', q.accounts, unpack(fields)) -- at most 4,000: two for each of 2,000 keys
  for at, name in ipairs(names) do
    q.account_by[name].limits = parse_limits(q, texts[2 * at - 1], texts[2 * at])
  end
end

-- Returns since when a bucket counts as full, if it is. A token that was fetched a little late must not delay all that come after,
-- so that time may lie a little before now.
local function full_since(q, limits)
  return math.max(limits.full_at, q.now - math.min(LATE, limits.interval))
end

-- Returns how many tokens a bucket has.
local function count_tokens(q, limits)
  return math.floor((q.now - full_since(q, limits)) / limits.interval + limits.burst + 0.000001)
end

-- Returns how many messages of an account may be delivered now, or lie in the streams.
local function find_allowance(q, account)
  local limits, cap = account.limits, q.cap > 0 and q.cap * account.weight or 0
  if not limits then return cap > 0 and cap - account.flight or 9e15 end
  if limits.paused_until > q.now then return 0 end
  cap = limits.cap or cap
  local allowance = cap > 0 and cap - account.flight or 9e15
  return limits.interval > 0 and math.min(allowance, count_tokens(q, limits)) or allowance
end

-- Says whether a bucket is to be stored: it is not full, or was not a moment ago.
local function is_stored(q, limits)
  return limits.interval > 0 and (limits.full_at > q.now or limits.stored and limits.full_at > q.now - LATE)
end

-- Counts a delivery of an account in its bucket.
local function spend_token(q, account)
  local limits = account.limits
  if not limits or limits.interval == 0 then return end
  limits.full_at = full_since(q, limits) + limits.interval
end

-- Returns when an account is to be looked at again: when it may have room, if something is held and only time will make room, or
-- when its bucket is full. Nil if time changes nothing.
local function find_next_look(q, account)
  local limits = account.limits
  if account.held > 0 and limits.paused_until > q.now then
    return limits.paused_until < NEVER and limits.paused_until or nil
  elseif account.held > 0 and limits.interval > 0 and count_tokens(q, limits) - account.shared < 1 then
    return limits.full_at - (limits.burst - 1 - account.shared) * limits.interval
  elseif account.held > 0 and account.shared == 0 and find_allowance(q, account) > 0 then
    return q.now -- this call lets nothing in
  end
  return is_stored(q, limits) and limits.full_at + LATE or nil
end

-- Writes down when to look at the accounts of this call again. Blocked readers look again by themselves, but maybe not so soon; one
-- learned of it already unless the time is a new one.
local function note_looks(q)
  local looks, is_soon, changed = {}, false, 0
  for _, account in ipairs(q.loaded) do
    local look_at = account.limits and find_next_look(q, account)
    if look_at then
      looks[#looks + 1], looks[#looks + 2] = string.format('%.0f', math.ceil(look_at)), 'r' .. account.name
      is_soon = is_soon or account.held > 0 and look_at < q.now + SOON
    end
  end
  act_in_parts(looks, function(from, upto) changed = changed + redis.call('ZADD', q.due, 'CH', unpack(looks, from, upto)) end)
  if is_soon and changed > 0 then notify_reader(q, '') end
end

-- Writes down the buckets of the accounts of this call.
local function save_limits(q, changes)
  for _, account in ipairs(q.loaded) do
    local limits = account.limits
    if limits then
      local text = is_stored(q, limits) and string.format('%.3f', limits.full_at)
      note_field(changes, 'b:' .. account.name, limits.stored, text)
    end
  end
  if q.note_looks then q.note_looks(q) end
end

-- Begins a call where there are limits: reads those of the queue, and gives the functions for those of accounts to other modules.
local function begin_limits(q)
  local limited, rate, burst = unpack(redis.call('HMGET', q.meta, 'limited', 'rate', 'burst')) -- at most 3: the fields
  q.rate, q.burst = tonumber(rate or '0'), tonumber(burst or '0')
  q.has_limits = (limited or '0') ~= '0' or q.rate > 0
  if not q.has_limits then return end
  q.has_more, q.counts_flight, q.note_looks = true, true, false
  q.load_limits, q.save_limits, q.find_allowance, q.spend_token = load_limits, save_limits, find_allowance, spend_token
end

-- Begins a call that may deliver or hold back messages, and so writes down when to look at their shard keys again.
local function begin_looks(q)
  redis.call('ZCARD', q.due)
  q.note_looks = note_looks
end
