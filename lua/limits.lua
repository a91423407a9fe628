-- The limits of an account: its own, or the queue's. Own ones are "cap,rate,burst,pause_until,pause_length,weight",
-- where '' is as the queue says, and '=' and a name in place of the cap are the limits and the weight of that plan (but
-- a weight of its own that is not 1 stands). No moment that is stored blocks for longer than its rule: this bounds
-- what a wrong clock can do.
Limits.NO_LIMITS = ',,,0,0,1'

local known_limits = {} -- by text, their parts: many accounts have the same
local known_bytes = 0

-- Returns the parts of such limits, and keeps them: nobody changes them.
local function parts_in(text)
  local parts = known_limits[text]
  if parts then return parts end
  local cap, rate, burst, till, length, weight = match(text, '^([^,]*),([^,]*),([^,]*),(%d+),(%d+),(%d+)$')
  parts = {cap, rate, burst, till + 0, length + 0, weight + 0}
  known_bytes = keep(known_limits, known_bytes, text, parts)
  return parts
end

-- Reads the limits of an account that has any.
function Limits.heed_limits(a, rules, now)
  local cap, rate, burst, pause, weight = rules.cap, rules.rate, rules.burst, 0, 1
  if a.limits ~= '-' then
    local own_cap, own_rate, own_burst, till, length, own_weight = unpack(parts_in(a.limits)) -- at most 6: the parts
    if byte(own_cap) == 61 then -- 61 is '='
      local plan = rules.plans[sub(own_cap, 2)] or {'', '', '', '1'}
      own_cap, own_rate, own_burst = plan[1], plan[2], plan[3]
      if own_weight == 1 then own_weight = plan[4] + 0 end
    end
    -- A pause never lasts longer from now on than it was long: so a clock that was set back does not prolong it.
    weight, pause = own_weight, min(till, now + length)
    -- It is written down, or it would end as much later at each look.
    if pause < till then a.limits = gsub(a.limits, ',%d+,(%d+),(%d+)$', ',' .. spell(pause) .. ',%1,%2') end
    cap = own_cap == '' and cap * weight or tonumber(own_cap) or 0
    if own_rate ~= '' then rate = own_rate + 0 end
    if own_rate ~= '' or own_burst ~= '' then burst = tonumber(own_burst) or 0 end
    if rate > 0 and burst == 0 then burst = max(1, ceil(rate)) end
  end
  a.cap, a.burst, a.pause, a.weight = cap, burst, pause, weight
  a.interval, a.ruled = rate > 0 and 1000 / rate or 0, true
  -- Nor can a bucket be emptier than empty, whatever the clock said when it was noted.
  a.full_at = rate > 0 and min(a.full_at, now + burst * a.interval) or 0
end

-- A bucket is one moment: when it is full again (generic cell rate algorithm, ITU-T I.371). How many tokens it has now.
local function tokens_of(full_at, interval, burst, now)
  return floor((now - max(full_at, now - min(LATE, interval))) / interval + burst + 0.000001)
end

-- When it is full after one more token was taken.
function Limits.full_after(full_at, interval, now) return max(full_at, now - min(LATE, interval)) + interval end

-- How many more messages of an account may be delivered now.
function Limits.allowance(a, now)
  if not a.ruled then return 9e15 end
  if a.pause > now then return 0 end
  local most = a.cap > 0 and a.cap - a.flight or 9e15
  if a.interval > 0 then most = min(most, tokens_of(a.full_at, a.interval, a.burst, now)) end
  return most
end

-- When time alone changes something for an account by its limits: it may go on, its pause is over, or its bucket is
-- full, so that it can be forgotten (looked at in whole seconds, many together). Nil: time changes nothing.
function Limits.moment_of_limits(a, now)
  if not a.ruled then return nil end
  if a.pause > now then return a.pause < FAR and a.pause or nil end
  if a.interval == 0 then return nil end
  if a.behind > 0 then
    if a.cap > 0 and a.flight >= a.cap then return nil end
    return tokens_of(a.full_at, a.interval, a.burst, now) < 1 and ceil(a.full_at - (a.burst - 1) * a.interval) or nil
  end
  -- Nothing waits, so only its memory is at stake: that has time, and one look for all of a second is enough.
  if a.full_at > now - LATE then return ceil((a.full_at + LATE) / 1000) * 1000 end
end

-- Returns an account's own limits as they are written: {cap or plan, rate, burst, pause until, pause length, weight}.
function Limits.parts_of(a)
  local cap, rate, burst, pause, length, weight = match(a.limits, '^([^,]*),([^,]*),([^,]*),(%d+),(%d+),(%d+)$')
  if not cap then return {'', '', '', '0', '0', '1'} end
  return {cap, rate, burst, pause, length, weight}
end

-- Returns the plan that such limits name, nil if they name none.
function Limits.plan_of(parts) return match(parts[1], '^=(.*)$') end

-- Spells such limits for a reply: "cap rate burst until", '-' is as the queue says, '=gold' is the plan gold.
function Limits.spell_own(parts)
  local spelled = {}
  for at = 1, 3 do spelled[at] = parts[at] == '' and '-' or parts[at] end
  return concat(spelled, ' ') .. ' ' .. parts[4]
end

-- Returns why a message of an account may not be delivered now that has so many before it, and until when if time ends
-- that; '' if it may. If the queue has a window, an account with something in flight waits for its end.
function Limits.reason_of(q, a, ahead)
  if a.ruled and a.pause > q.now then return 'paused', a.pause < FAR and spell(a.pause) or '' end
  if a.ruled and Limits.allowance(a, q.now) - ahead < 1 then
    return a.cap > 0 and a.flight + ahead >= a.cap and 'max_in_flight' or 'rate', ''
  end
  return a.flight > 0 and 'window' or '', ''
end

-- Takes a pause that is over out of the limits.
function Limits.end_pause(a)
  if a.limits == '-' or a.pause == 0 then return end
  a.limits, a.pause = gsub(a.limits, '^([^,]*,[^,]*,[^,]*),%d+,%d+', '%1,0,0'), 0
  if a.limits == Limits.NO_LIMITS then a.limits = '-' end
end

-- The limits of the whole queue: how many of `count` messages may be delivered at most, and if none, until when that
-- is so.
-- Nothing but the number of leases is looked at for it.
function Limits.limit_queue(q, count)
  local rules, now = q.rules, q.now
  local till, length = match(q.odd.paused or '', '^(%d+),(%d+)$')
  if till then
    local stored = till + 0
    till = min(stored, now + length)
    if till < stored then State.put_odd(q, 'paused', spell(till) .. ',' .. length) end
    if till > now then return 0, till end
    State.put_odd(q, 'paused', '')
  end
  if rules.total_rate > 0 then
    local interval = 1000 / rules.total_rate
    local stored = tonumber(call('HGET', q.keys[META], 'full_at') or 0)
    q.full_at = min(stored, now + rules.total_burst * interval)
    -- It is written down, or it would be too far at each look.
    if q.full_at < stored then State.put(q, 'full_at', spell_moment(q.full_at)) end
    local tokens = tokens_of(q.full_at, interval, rules.total_burst, now)
    if tokens < 1 then return 0, ceil(q.full_at - (rules.total_burst - 1) * interval) end
    count = min(count, tokens)
  end
  if rules.total_cap > 0 then
    -- A lease that has ended counts, too, until a read takes it back.
    local places = rules.total_cap - (call('ZCARD', q.keys[LEASES]) - 1) -- the sentinel is no lease
    -- With a lease that has ended the read goes on: `bring` may free its place.
    if places < 1 and q.lease_at > now then return 0, q.lease_at end
    q.places = places
  end
  return count
end

-- Counts what was delivered in the bucket of the whole queue. Returns when it has a token again.
function Limits.charge_queue(q)
  if q.found == 0 then return end
  local interval = 1000 / q.rules.total_rate
  for _ = 1, q.found do q.full_at = Limits.full_after(q.full_at, interval, q.now) end
  State.put(q, 'full_at', spell_moment(q.full_at))
  return ceil(q.full_at - (q.rules.total_burst - 1) * interval)
end
