-- An account is all that is known of a shard key (with parents: of a parent). In the state it is nothing if nothing is
-- known, flight * 1000 + taken if that is all, else "taken flight behind returned delayed served full_at look_at listed
-- counted limits queue":
--   taken     messages in the streams; `flight` those that are worked on
--   behind    messages that wait, of which so many are `returned`: given back, or come due
--   delayed   messages that are not yet due
--   served    the service received, in 0.1 ms by weight; '-': as much as the virtual time
--   full_at   when its bucket is full; `look_at` its moment in `due`
--   listed    1: it waits in `turns`, 2: it is idle there
--   limits    of its own; `queue` where its overflow begins and ends, of a parent how its children go on (children.lua)
local FLIGHT = 8796093022208 -- a score in `turns` is flight * FLIGHT + served (2^43, so both fit a double exactly)
Accounts.IDLE = 1001 * FLIGHT -- behind all others: nothing waits

-- Reads an account of which more is known. Nil if something else wrote the text; a word of it in place of a number
-- that may be unknown counts as nothing.
local function parse_long(name, text)
  local taken, flight, behind, returned, delayed, served, full_at, look_at, listed, counted, limits, queue =
    match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%d) (-?%d+) (%S+) (%S+)$')
  if not taken then return nil end
  return new_a{
    name = name, taken = taken + 0, flight = flight + 0, behind = behind + 0, returned = returned + 0,
    delayed = delayed + 0, served = served ~= '-' and tonumber(served) or nil, full_at = tonumber(full_at) or 0,
    look_at = tonumber(look_at) or 0, listed = listed + 0, limits = limits, queue = queue, text = text,
    counted = counted + 0, overflow = nil,
  }
end

local function has_no_block(a)
  if a.overflow then return a.overflow.size == 0 end
  return a.queue == '-'
end

local function spell_long(a, now)
  return concat({
    spell(a.taken), spell(a.flight), spell(a.behind), spell(a.returned), spell(a.delayed),
    a.served and spell(a.served) or '-',
    a.full_at > now - LATE and spell_moment(a.full_at) or '0', a.look_at > 0 and spell_moment(a.look_at) or '0',
    spell(a.listed), spell(a.counted), a.limits, a.overflow and Overflow.spell_overflow(a.overflow) or a.queue,
  }, ' ')
end

-- Notes what is known of an account from now on, if that has changed: nothing of one that has nothing.
function Accounts.save_account(q, a)
  local now, said = q.now, a.text
  if a.behind == 0 and a.delayed == 0 and not a.served and a.limits == '-' and a.listed == 0 and a.taken < 1000
    and a.full_at <= now - LATE and a.look_at == 0 and a.counted == 0 and has_no_block(a) then
    local number = a.flight * 1000 + a.taken
    if number == 0 then
      if said then State.unset(q, 't:' .. a.name) end
    elseif number ~= a.number then
      State.put(q, 't:' .. a.name, spell(number))
    end
    return
  end
  local text = spell_long(a, now)
  if text ~= said then State.put(q, 't:' .. a.name, text) end
end

-- Whose turn it is: the account with fewest in flight for its weight, and of these the one that has received least.
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
  local number = text and tonumber(text) or 0
  local a
  if not (number > 0 and number < 1e12) then
    number = 0
    a = text and parse_long(name, text)
  end
  if not a then
    local taken = number % 1000
    a = new_a{
      name = name, taken = taken, flight = (number - taken) / 1000, behind = 0, returned = 0, delayed = 0, full_at = 0,
      look_at = 0, listed = 0, limits = '-', queue = '-', text = text or nil, counted = 0, number = number,
      overflow = nil, -- the last one that many have
    }
  end
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
  local fields, missing
  for _, name in ipairs(names) do
    if not q.accounts[name] then
      if not fields then fields, missing = {nil}, {nil} end
      fields[#fields + 1], missing[#missing + 1] = 't:' .. name, name
    end
  end
  if not fields then return end
  local texts = call('HMGET', q.keys[META], unpack(fields)) -- at most 1,000: one for each message of a call
  for at, name in ipairs(missing) do
    if not q.accounts[name] then Accounts.meet(q, name, texts[at]) end
  end
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
