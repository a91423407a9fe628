-- An account is all that is known of a shard key (with parents: of a parent). In the state it is nothing if nothing is
-- known, else "both", "both:served" or "both:served:behind:queue", where `both` is flight * 1000 + taken: so short as
-- long as all that is not said is as usual. (All that waits is new, and is listed and counted unless `taken` comes
-- first.) Else it is "taken flight behind returned delayed served full_at look_at listed counted limits queue":
--   taken     messages in the streams; `flight` those that are worked on
--   behind    messages that wait; `returned` of these were given back, or came due
--   delayed   messages that are not yet due
--   served    the service received, in 0.1 ms by weight; '-': as much as the virtual time
--   full_at   when its bucket is full; `look_at` its moment in `due`
--   listed    1: it waits in `turns`, 2: it is idle there
--   limits    its own; `queue` where its overflow begins and ends, for a parent how its children proceed (children.lua)
local FLIGHT = 8796093022208 -- a score in `turns` is flight * FLIGHT + served (2^43, so both fit a double exactly)
Accounts.IDLE = 1001 * FLIGHT -- behind all others: nothing waits

-- Says what `listed` is if there is nothing else than this.
local function usual_listed(taken, behind) return behind > 0 and taken == 0 and 1 or 0 end

-- Makes an account about which nothing else is known.
local function new_account(name, text, taken, flight, served, behind, queue)
  return new_a{
    name = name, taken = taken, flight = flight, behind = behind, returned = 0, delayed = 0, served = served,
    full_at = 0, look_at = 0, listed = behind > 0 and usual_listed(taken, behind) or 0, limits = '-',
    queue = queue, text = text, counted = behind,
    interval = nil, -- the last one that many have: tables that grow take longer
  }
end

-- Reads the short form.
local function parse_short(name, text)
  local few = small_numbers[text] -- mostly nothing else is known
  if few then return new_account(name, text, few % 1000, (few - few % 1000) / 1000, nil, 0, '-') end
  local both, served, behind, queue = match(text, '^(%d+):?(%d*):?(%d*):?(%S*)$')
  if not both or #both > 12 then return nil end
  both = small_numbers[both] or both + 0
  local taken = both % 1000
  local flight = (both - taken) / 1000
  if behind ~= '' then return new_account(name, text, taken, flight, tonumber(served), behind + 0, queue) end
  return new_account(name, text, taken, flight, served ~= '' and served + 0 or nil, 0, '-')
end

-- Reads the long form. Nil if something else wrote the text; a word of it in place of a number that may be unknown
-- counts as nothing.
local function parse_long(name, text)
  local taken, flight, behind, returned, delayed, served, full_at, look_at, listed, counted, limits, queue =
    match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%d) (-?%d+) (%S+) (%S+)$')
  if not taken then return nil end
  return new_a{
    name = name, taken = taken + 0, flight = flight + 0, behind = behind + 0, returned = returned + 0,
    delayed = delayed + 0, served = served ~= '-' and tonumber(served) or nil, full_at = tonumber(full_at) or 0,
    look_at = tonumber(look_at) or 0, listed = listed + 0, limits = limits, queue = queue, text = text,
    counted = counted + 0, interval = nil,
  }
end

local function has_no_block(a)
  if a.overflow then return a.overflow.size == 0 end
  return a.queue == '-'
end

local function queue_of(a) return a.overflow and Overflow.spell_overflow(a.overflow) or a.queue end

local function spell_long(a, now)
  return concat({
    spell(a.taken), spell(a.flight), spell(a.behind), spell(a.returned), spell(a.delayed),
    a.served and spell(a.served) or '-',
    a.full_at > now - LATE and spell_moment(a.full_at) or '0', a.look_at > 0 and spell_moment(a.look_at) or '0',
    spell(a.listed), spell(a.counted), a.limits, queue_of(a),
  }, ' ')
end

-- Spells an account; '' if nothing is known of it.
local function spell_account(a, now)
  local taken, behind, served = a.taken, a.behind, a.served
  if a.limits ~= '-' or a.delayed > 0 or a.returned > 0 or a.look_at > 0 or taken > 999 or a.counted ~= behind
    or a.full_at > now - LATE then
    return spell_long(a, now)
  end
  local both = a.flight * 1000 + taken
  if behind == 0 then
    if a.listed > 0 or (a.overflow or a.queue ~= '-') and not has_no_block(a) then return spell_long(a, now) end
    if served then return (spelled[both] or spell(both)) .. ':' .. spell(served) end
    return both == 0 and '' or spelled[both] or spell(both)
  end
  if a.listed ~= usual_listed(taken, behind) or has_no_block(a) then return spell_long(a, now) end
  served = served and spell(served) or ''
  return (spelled[both] or spell(both)) .. ':' .. served .. ':' .. spell(behind) .. ':' .. queue_of(a)
end

-- Notes what is known of an account from now on, if that has changed.
function Accounts.save_account(q, a)
  local text = spell_account(a, q.now)
  if text == (a.text or '') then return end
  if text == '' then State.unset(q, 't:' .. a.name) else State.put(q, 't:' .. a.name, text) end
end

-- The next turn goes to the account with fewest in flight for its weight, and among these to the one that has received
-- least.
function Accounts.score_of(a, virtual, more)
  local flight = a.flight + (more or 0)
  if a.weight and a.weight > 1 then flight = floor(flight / a.weight) end
  return min(flight, 1000) * FLIGHT + (a.served or virtual)
end

-- Returns the service in such a score, and the level: for how many in flight it stands. (Nobody's service lies half a
-- FLIGHT, 14 years, off the virtual time.)
function Accounts.service_in(score, virtual)
  local level = floor((score - virtual) / FLIGHT + 0.5)
  return score - level * FLIGHT, level
end

-- Returns a score above all of this level, and below those of the next.
function Accounts.end_of_level(level, virtual) return (level + 0.5) * FLIGHT + virtual end

-- Puts who has one more in flight behind those whose turn comes before. They are in order already, but for weights.
local function insert_later(later, a, from)
  local at = #later + 1
  while at > from do
    local other = later[at - 1]
    if other.next_score <= a.next_score then break end
    later[at] = other
    at = at - 1
  end
  later[at] = a
end

-- Deals out this number of deliveries among those that are ready, in the order of their scores: the least score gives
-- one, and comes again with one more in flight. `a.by` says then how many each gives, at most as `most_of` says.
-- Returns those that give some.
function Accounts.deal(q, ready, number, virtual, most_of, score_of)
  local later = {}
  local picked = {nil}
  local got, from, to = 0, 1, 1
  while got < number do
    local a, other = ready[from], later[to]
    if other and (not a or other.next_score < a.score) then
      a, to = other, to + 1
    elseif a then
      from = from + 1
    else
      break
    end
    if not a.by then
      a.by = 0
      picked[#picked + 1] = a
    end
    a.by, got = a.by + 1, got + 1
    if got < number then -- its next turn is of interest
      if a.by == 1 then a.most = most_of(q, a) end
      if a.by < a.most then
        a.next_score = score_of(q, a, virtual, a.by)
        insert_later(later, a, to)
      end
    end
  end
  return picked
end

-- Makes an account known to this call. A text that something else wrote counts as nothing, so that it stops nobody
-- else.
function Accounts.meet(q, name, text)
  local a = text and (parse_short(name, text) or parse_long(name, text))
  if not a then a = new_account(name, text or nil, 0, 0, nil, 0, '-') end
  -- Without limits a bucket that was left says nothing any more.
  if q.rules.for_all or a.limits ~= '-' then Limits.heed_limits(a, q.rules, q.now) else a.full_at = 0 end
  -- Its place in `turns` follows from what the account says, so it need not be asked for. `find_heads` mends one that
  -- is wrong.
  if a.listed == 1 then a.score = Accounts.score_of(a, q.virtual) end
  local names = q.names
  q.accounts[name], names[#names + 1] = a, name
  return a
end

-- Loads the accounts that this call does not know yet, by one look.
function Accounts.load_accounts(q, names)
  local accounts, fields, missing, n = q.accounts, nil, nil, 0
  for at = 1, #names do
    local name = names[at]
    if accounts[name] == nil then
      if not fields then fields, missing = {nil}, {nil} end
      n = n + 1
      fields[n], missing[n] = 't:' .. name, name
      accounts[name] = false -- once
    end
  end
  if not fields then return end
  local texts = call('HMGET', q.keys[META], unpack(fields)) -- at most 1,000: one for each message of a call
  for at = 1, n do Accounts.meet(q, missing[at], texts[at]) end
end

function Accounts.find_account(q, name)
  return q.accounts[name] or Accounts.meet(q, name, call('HGET', q.keys[META], 't:' .. name))
end

-- Counts how many messages of an account may be delivered now, besides those in the streams: less than none if its
-- limits block some of these.
function Accounts.count_servable(q, a)
  local counted = a.behind
  if a.ruled then counted = min(a.taken + a.behind, max(0, Limits.allowance(a, q.now))) - a.taken end
  if counted == a.counted then return end
  q.servable = q.servable + counted - a.counted
  a.counted = counted
end
