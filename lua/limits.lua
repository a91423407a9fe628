-- The limits of an account: its own, or the queue's. Own ones are "cap,rate,burst,pause_until,pause_length,weight",
-- where '' is as the queue says, and '=' and a name in place of the cap are the limits and the weight of that plan (but
-- a weight of its own that is not 1 stands). Where the limits or the weight have an end, behind these come
-- "limits_until,limits_length,weight_until,weight_length", 0 for what has none. No moment that is stored blocks for
-- longer than its rule: this bounds what a wrong clock can do.
local NO_LIMITS = ',,,0,0,1'

-- The places of the parts with an end: until when, and behind that for how long.
local PAUSE = 4
local OWN = 7
local WEIGHT = 9
local FIRST = '^([^,]*),([^,]*),([^,]*),(%d+),(%d+),(%d+)()'
local ENDS = '^,(%d+),(%d+),(%d+),(%d+)$'

local known_limits = {} -- by text, their parts: many accounts have the same
local known_bytes = 0

-- Returns the parts of such limits, and keeps them: nobody changes them.
local function parts_in(text)
  local parts = known_limits[text]
  if parts then return parts end
  local cap, rate, burst, till, length, weight, rest = match(text, FIRST)
  parts = {cap, rate, burst, till + 0, length + 0, weight + 0}
  local ends = {match(text, ENDS, rest)}
  for at = 1, #ends do parts[6 + at] = ends[at] + 0 end
  known_bytes = keep(known_limits, known_bytes, text, parts)
  return parts
end

-- Spells parts that have an end.
local function spell_parts(parts)
  local words = {parts[1], parts[2], parts[3]}
  for at = 4, 10 do words[at] = spell(parts[at]) end
  return concat(words, ',')
end

-- Returns these parts without limits and a weight that are over, and notes when the next of them ends. (As with a
-- pause, a clock that was set back prolongs nothing.)
local function heed_ends(a, parts, now)
  local kept = {unpack(parts)} -- at most 10: the parts
  local is_shorter, ends = false, nil
  for at = OWN, WEIGHT, 2 do
    local till = min(kept[at], now + kept[at + 1])
    if till < kept[at] then kept[at], is_shorter = till, true end
    if till > 0 then ends = min(ends or till, till) end
  end
  if is_shorter then a.limits = spell_parts(kept) end
  a.ends = ends
  if kept[OWN] > 0 and kept[OWN] <= now then kept[1], kept[2], kept[3] = '', '', '' end
  if kept[WEIGHT] > 0 and kept[WEIGHT] <= now then kept[6] = 1 end
  return kept
end

-- Reads the limits of an account that has any.
function Limits.heed_limits(a, rules, now)
  local cap, rate, burst, pause, weight = rules.cap, rules.rate, rules.burst, 0, 1
  if a.limits ~= '-' then
    local parts = parts_in(a.limits)
    if parts[OWN] then parts = heed_ends(a, parts, now) end
    local own_cap, own_rate, own_burst, till, length, own_weight = unpack(parts, 1, 6) -- at most 6: the parts
    if byte(own_cap) == 61 then -- 61 is '='
      local plan = rules.plans[sub(own_cap, 2)] or {'', '', '', '1'}
      own_cap, own_rate, own_burst = plan[1], plan[2], plan[3]
      if own_weight == 1 then own_weight = plan[4] + 0 end
    end
    -- A pause never lasts longer from now on than it was long: so a clock that was set back does not prolong it.
    weight, pause = own_weight, min(till, now + length)
    -- It is written down, or it would end as much later at each look.
    if pause < till then a.limits = gsub(a.limits, '^([^,]*,[^,]*,[^,]*),%d+', '%1,' .. spell(pause)) end
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

-- When time alone lets more of an account through, or what is known of it be forgotten: its pause is over, a token
-- comes back, or its bucket is full (looked at in whole seconds, many together).
local function moment_of_block(a, now)
  if a.pause > now then return a.pause < FAR and a.pause or nil end
  if a.interval == 0 then return nil end
  if a.behind > 0 then
    if a.cap > 0 and a.flight >= a.cap then return nil end
    return tokens_of(a.full_at, a.interval, a.burst, now) < 1 and ceil(a.full_at - (a.burst - 1) * a.interval) or nil
  end
  -- Nothing waits, so only its memory is at stake: that has time, and one look for all of a second is enough.
  if a.full_at > now - LATE then return ceil((a.full_at + LATE) / 1000) * 1000 end
end

-- When time alone changes something for an account by its limits, or by the end of these. Nil: time changes nothing.
function Limits.moment_of_limits(a, now)
  if not a.ruled then return nil end
  local at = moment_of_block(a, now)
  local ends = a.ends
  if ends and (not at or ends < at) then return ends end
  return at
end

-- Says whether what these parts have there is over. It never lasts longer from now on than it was long, so where the
-- clock was set back it ends earlier than it says.
local function is_over(parts, at, now)
  local till = parts[at] + 0
  if till == 0 then return false end
  till = min(till, now + parts[at + 1])
  parts[at] = spell(till)
  return till <= now
end

-- Returns own limits as they are written, but for what is over: {cap or plan, rate, burst, pause until, pause length,
-- weight, limits until, their length, weight until, its length}, all texts.
function Limits.parts_of(text, now)
  local cap, rate, burst, pause, length, weight, rest = match(text, FIRST)
  if not cap then return {'', '', '', '0', '0', '1', '0', '0', '0', '0'} end
  local till, lasts, weight_till, weight_lasts = match(text, ENDS, rest)
  local parts = {
    cap, rate, burst, pause, length, weight, till or '0', lasts or '0', weight_till or '0', weight_lasts or '0',
  }
  if is_over(parts, PAUSE, now) then parts[PAUSE], parts[PAUSE + 1] = '0', '0' end
  if is_over(parts, OWN, now) then parts[1], parts[2], parts[3], parts[OWN], parts[OWN + 1] = '', '', '', '0', '0' end
  if is_over(parts, WEIGHT, now) then parts[6], parts[WEIGHT], parts[WEIGHT + 1] = '1', '0', '0' end
  return parts
end

-- Returns the limits that stand in the text of an account, '-' for none.
function Limits.limits_in(account) return match(account or '', ' (%S*,%S+) %S+$') or '-' end

-- Spells such parts; '-' if they say nothing.
function Limits.text_of(parts)
  local has_end = parts[OWN] ~= '0' or parts[WEIGHT] ~= '0'
  local text = concat(parts, ',', 1, has_end and 10 or 6)
  return text == NO_LIMITS and '-' or text
end

-- Says that the limits, or the weight, that such parts have end after this many ms, '' for never.
function Limits.put_end(parts, of_weight, lasts, now)
  local at = of_weight and WEIGHT or OWN
  parts[at], parts[at + 1] = '0', '0'
  if lasts ~= '' then parts[at], parts[at + 1] = spell(now + lasts), spell(lasts) end
end

-- Returns the plan that such limits name, nil if they name none.
function Limits.plan_of(parts) return match(parts[1], '^=(.*)$') end

-- The sum of the weights that wait for a turn, beside one for each: weights of their own under '', and under the name
-- of a plan how many are on it, since its weight may change. (A weight that has ended counts until `end_over`.)
local function read_heavy(text)
  local heavy = {}
  for name, number in gmatch(text or '', '([%w._-]*):(%d+)') do heavy[name] = number + 0 end
  return heavy
end

-- Counts an account that comes to wait for a turn (1), or does so no more (-1), with what it weighs beside one.
function Limits.count_turn(q, a, by)
  if a.limits == '-' then return end
  local parts = parts_in(a.limits)
  local more = parts[6] - 1
  local name = more == 0 and match(parts[1], '^=(.*)$') or ''
  if more == 0 and name == '' then return end
  local heavy = read_heavy(q.odd.heavy)
  heavy[name] = max(0, (heavy[name] or 0) + by * max(1, more))
  local words = {}
  for each, number in pairs(heavy) do
    if number > 0 and q.turns > 0 then words[#words + 1] = each .. ':' .. spell(number) end
  end
  State.put_odd(q, 'heavy', concat(words, ' '))
end

-- Returns the sum of the weights of those that wait for a turn.
function Limits.weight_of_turns(q)
  local text, weight = q.odd.heavy, q.turns
  if not text then return weight end
  for name, number in pairs(read_heavy(text)) do
    local plan = q.rules.plans[name]
    weight = weight + number * (name == '' and 1 or plan and plan[4] - 1 or 0)
  end
  return weight
end

-- Gives an account other limits of its own. For each plan it is known how many accounts name it.
function Limits.put_limits(q, a, parts)
  local before = match(a.limits, '^=([^,]*)')
  local after = Limits.plan_of(parts)
  if before ~= after then
    if before then State.count_up(q, 'G:' .. before, -1) end
    if after then State.count_up(q, 'G:' .. after, 1) end
  end
  if a.listed == 1 then Limits.count_turn(q, a, -1) end
  a.limits = Limits.text_of(parts)
  if a.listed == 1 then Limits.count_turn(q, a, 1) end
  if a.ends then a.ends = nil end
  Limits.heed_limits(a, q.rules, q.now)
  a.score = nil -- in `turns`: that of another weight may stand there
end

-- Takes what is over out of the limits of an account.
function Limits.end_over(q, a)
  if a.limits == '-' then return end
  local is_over = a.pause > 0 and a.pause <= q.now or a.ends and a.ends <= q.now
  if is_over then Limits.put_limits(q, a, Limits.parts_of(a.limits, q.now)) end
end

-- Spells such limits for a reply: "cap rate burst until", '-' is as the queue says, '=gold' is the plan gold.
function Limits.spell_own(parts)
  local spelled = {}
  for at = 1, 3 do spelled[at] = parts[at] == '' and '-' or parts[at] end
  return concat(spelled, ' ') .. ' ' .. parts[4]
end

-- Returns why a message of an account may not be delivered now, given the number before it, and until when if time ends
-- that; '' if it may. If the queue has a window, an account with something in flight waits for its end.
function Limits.reason_of(q, a, ahead)
  if a.ruled and a.pause > q.now then return 'paused', a.pause < FAR and spell(a.pause) or '' end
  if a.ruled and Limits.allowance(a, q.now) - ahead < 1 then
    return a.cap > 0 and a.flight + ahead >= a.cap and 'max_in_flight' or 'rate', ''
  end
  return a.flight > 0 and 'window' or '', ''
end

-- Returns until when the whole queue is paused, in ms, nil if it is not.
function Limits.end_of_pause(odd, now)
  local till, length = match(odd.paused or '', '^(%d+),(%d+)$')
  if not till then return nil end
  till = till + 0 < FAR and min(till, now + length) or till + 0
  return till > now and till or nil
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
    -- With a lease that has ended the read continues: `bring` may free its place.
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
