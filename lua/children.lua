-- The children of a parent: shard keys with the same part before the first '/'. They take turns within the turns of the
-- parent as shard keys do within those of the queue: fewest in flight first, then least service received, by weight. A
-- child is "behind returned queue weight flight served place left":
--   behind     messages that wait; `returned` of these were given back; `queue` is its overflow
--   served     the service received, in 0.1 ms by weight, '-': as much as the parent's virtual time
--   place      where it stands in the order, '-': nowhere; `left` the place before, which a write may not take away
-- It has a field while something of it waits or is in flight, or while it is ahead of its siblings and one of these
-- waits. Its own account has only its weight.
--
-- The order is in `delayed`, behind all messages: members "p<size>:parent:<16 digits>:child". (Messages begin with a
-- digit; and a write, which lists a child, declares that key.) The digits are a score as in `turns`. The children of a
-- parent are one range: first those with waiting messages, then those that are ahead and have none. The parent's
-- account has in the place of an overflow "v<virtual time>.<when it moved, in ms>"; '-' where none of this is needed.
local DIGITS = 16
local MESSAGE = 10000 -- 0.1 ms that a message counts where turns are fair in messages alone
local MET = 16 -- children of a parent without waiting messages, or of its ring, in one look
local MOST_LEVELS = 8 -- numbers in flight at which children are looked at
local MOST_FORGOTTEN = 1000
local FRESH = 'v0.0'

local function spell_place(score)
  local text = spell(score)
  return rep('0', DIGITS - #text) .. text
end

local function order_of(a) return 'p' .. #a.name .. ':' .. a.name .. ':' end

local function member_of(child, place)
  local name = Rules.parent_of(child.name)
  return 'p' .. #name .. ':' .. name .. ':' .. place .. ':' .. child.name
end

-- Returns the virtual time of a parent's children, and when it moved.
local function clock_of(a)
  local virtual, seen_at = match(a.queue, '^v(%d+)%.(%d+)$')
  return (virtual or 0) + 0, (seen_at or 0) + 0
end

local function parse_child(name, text, account, now)
  local behind, returned, queue, weight, flight, served, place, left =
    match(text or '', '^(%d+) (%d+) (%S+) (%d+) (%d+) (%S+) (%S+) (%S+)$')
  -- Earlier versions had them in a ring: see `empty_ring`.
  if text and not behind then behind, returned, queue, weight = match(text, '^(%d+) (%d+) (%S+) (%d+) %d+ %d+$') end
  weight = weight or Limits.parts_of(Limits.limits_in(account), now)[6]
  return new_child{
    name = name, behind = (behind or 0) + 0, returned = (returned or 0) + 0, queue = queue or '-',
    weight = weight + 0, flight = (flight or 0) + 0, served = tonumber(served or '-') or nil,
    place = place ~= '-' and place or nil, left = left ~= '-' and left or nil, text = text or nil,
  }
end

-- Loads children that this call does not know yet, by one look.
function Children.load(q, names)
  if not q.children then
    Arguments.check_key(q.keys, DELAYED) -- where they stand: before the first effect of a call
    q.children = {}
  end
  local fields, missing = {}, {}
  for _, name in ipairs(names) do
    if not q.children[name] and not missing[name] then
      missing[#missing + 1], missing[name] = name, true
      fields[#fields + 1], fields[#fields + 2] = 'c:' .. name, 't:' .. name
    end
  end
  if #fields == 0 then return end
  local texts = call('HMGET', q.keys[META], unpack(fields)) -- at most 2,000: two for each message of a call
  for at, name in ipairs(missing) do q.children[name] = parse_child(name, texts[2 * at - 1], texts[2 * at], q.now) end
end

function Children.child_of(q, name)
  if not q.children or not q.children[name] then Children.load(q, {name}) end
  return q.children[name]
end

-- The weight of a child may have ended: its account says what it is now.
function Children.end_weight(q, a)
  local child = Children.child_of(q, a.name)
  child.weight = a.weight
end

local function score_of(q, child, virtual, more)
  if not q.rules.is_by_messages then return Accounts.score_of(child, virtual, more) end
  return (child.served or virtual) + (more or 0) * ceil(MESSAGE / child.weight)
end

local function most_of(_, child) return child.behind end

-- A child begins to wait. One that was idle has no credit for that time.
function Children.begin_waiting(a, child)
  if a.queue == '-' then a.queue = FRESH end
  local virtual = clock_of(a)
  child.served = child.flight == 0 and max(child.served or virtual, virtual) or child.served or virtual
end

-- One more of a child is in flight.
function Children.begin_delivery(q, a, key)
  local child = Children.child_of(q, key)
  if q.contested then
    local virtual = clock_of(a)
    if not child.served or child.flight + child.behind == 0 then
      child.served = max(child.served or virtual, virtual)
    end
    if q.rules.is_by_messages then child.served = child.served + ceil(MESSAGE / child.weight) end
  end
  child.flight = child.flight + 1
end

function Children.end_delivery(q, key)
  local child = Children.child_of(q, key)
  child.flight = max(0, child.flight - 1)
end

-- Charges a child what its delivery has cost.
function Children.charge(q, a, key, ms)
  if q.rules.is_by_messages then return end
  local child = Children.child_of(q, key)
  child.served = (child.served or clock_of(a)) + floor(ms * 10 / child.weight + 0.5)
end

-- Returns where a child belongs now, nil for nowhere. While nothing of its parent waits nobody is ahead.
local function place_of(q, a, child)
  local virtual = clock_of(a)
  if child.behind > 0 then
    child.served = child.served or virtual
    return spell_place(score_of(q, child, virtual))
  end
  if a.behind == 0 or child.flight == 0 and (child.served or 0) <= virtual then child.served = nil end
  if child.flight > 0 or not child.served then return nil end
  return spell_place(Accounts.IDLE + child.served)
end

local function spell_child(child)
  local queue = child.overflow and Overflow.spell_overflow(child.overflow) or child.queue
  return concat({
    spell(child.behind), spell(child.returned), queue, spell(child.weight), spell(child.flight),
    child.served and spell(child.served) or '-', child.place or '-', child.left or '-',
  }, ' ')
end

-- Counts places that come or go: they are no messages that are delayed.
local function count_places(q, by)
  local number = max(0, (q.odd.places or 0) + by)
  State.put_odd(q, 'places', number > 0 and spell(number) or '')
end

-- Puts the children of this call where they belong.
local function place_all(q)
  for name, child in pairs(q.children) do
    local place = place_of(q, Accounts.find_account(q, Rules.parent_of(name)), child)
    if place ~= child.place then
      child.left = child.left or child.place
      child.place = place
      if place then
        add(q, 'later', 0, member_of(child, place))
        count_places(q, 1)
      end
    end
  end
end

-- Notes what is known of the children of this call from now on.
local function put_all(q)
  for name, child in pairs(q.children) do
    local is_known = child.behind + child.flight > 0 or child.place
    local text = is_known and spell_child(child) or nil
    if text ~= child.text then
      if text then State.put(q, 'c:' .. name, text) else State.unset(q, 'c:' .. name) end
      child.text = text
    end
  end
end

-- Does both for a write: it lists children, and may take nothing away.
function Children.note(q)
  place_all(q)
  put_all(q)
end

-- Takes children out of the places that they have left.
local function drop_left(q)
  for _, child in pairs(q.children) do
    if child.left then
      add(q, 'not_later', member_of(child, child.left))
      count_places(q, -1)
      child.left = nil
    end
  end
end

-- Loads the children of these members, and returns those that stand there. Members where nobody stands are taken away.
local function meet_members(q, order, members)
  local names, found = {}, {}
  for at, member in ipairs(members) do names[at] = sub(member, #order + DIGITS + 2) end
  Children.load(q, names)
  for at, member in ipairs(members) do
    local child = q.children[names[at]]
    local place = sub(member, #order + 1, #order + DIGITS)
    if child.place == place then
      child.score = place + 0
      found[#found + 1] = child
    elseif child.left ~= place then
      add(q, 'not_later', member)
      count_places(q, -1)
    end
  end
  return found
end

-- Meets some children without waiting messages, beginning with those that are least ahead, up to a place: they are put
-- where they belong with all others of the call. Says whether there are no more.
local function meet_idle(q, a, upto)
  local order = order_of(a)
  local from = '[' .. order .. spell_place(Accounts.IDLE)
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], from, '(' .. order .. upto, 'LIMIT', 0, MET)
  meet_members(q, order, members)
  return #members < MET
end

-- Moves a piece of the ring that earlier versions had into the order.
local function empty_ring(q, a)
  local base = 'p' .. a.name .. '\n'
  for _ = 1, MET do
    local name, offset = Overflow.peek_record(q, a, base)
    if not name then break end
    Children.child_of(q, name)
    Overflow.pass_record(q, a, base, offset)
  end
  if a.overflow.size == 0 then a.overflow, a.queue = nil, FRESH end
end

local function has_ring(a) return a.overflow or match(a.queue, '^%d') end

-- Says whether something may be kept of the children of an account. (A queue may have had parents before.)
function Children.may_be_kept(q, a)
  return byte(a.queue) == 118 or q.rules.parents and has_ring(a) -- 118 is 'v'
end

-- Says whether something is kept of the children of an account with nothing waiting and nothing in flight. If so, a
-- piece of it is forgotten.
function Children.are_kept(q, a)
  if not Children.may_be_kept(q, a) then return false end
  if has_ring(a) then
    empty_ring(q, a)
  elseif meet_idle(q, a, ':') then -- (behind all digits)
    a.queue = '-'
    return false
  end
  return true
end

-- Those parents stay in `turns` of whose children something is kept: each read forgets a piece.
local function let_parents_rest(q)
  local parents = {}
  for name in pairs(q.children) do parents[Rules.parent_of(name)] = true end
  for name in pairs(parents) do
    local a = Accounts.find_account(q, name)
    if a.taken + a.behind + a.flight == 0 and Children.are_kept(q, a) then a.served = a.served or q.virtual end
  end
end

-- Puts the children of this call where they belong, and notes what is known of them.
function Children.save(q)
  let_parents_rest(q)
  drop_left(q)
  place_all(q)
  drop_left(q)
  put_all(q)
end

-- Puts them there at once, before a read chooses.
function Children.flush(q)
  drop_left(q)
  place_all(q)
  drop_left(q)
  local lists = q.lists
  if not lists or not (lists.later or lists.not_later) then return end
  Types.look_at_all(q)
  send(q, 'not_later', 'ZREM', DELAYED)
  send(q, 'later', 'ZADD', DELAYED)
end

-- Returns children with waiting messages, by whose turn it is, from one on ('' for the first); and at how many places
-- it has looked.
function Children.listed(q, a, first, most)
  local order = order_of(a)
  local from = '[' .. order
  if first ~= '' then
    local child = Children.child_of(q, first)
    if not child.place then return {}, 0 end -- it has nothing any more
    from = '[' .. member_of(child, child.place)
  end
  local upto = '(' .. order .. spell_place(Accounts.IDLE)
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], from, upto, 'LIMIT', 0, most)
  return meet_members(q, order, members), #members
end

-- Returns the first score at or above one among the children of a parent; nil if there is none.
local function first_from(q, score, a)
  local order = order_of(a)
  local from = '[' .. order .. spell_place(ceil(score))
  local upto = '(' .. order .. spell_place(Accounts.IDLE)
  local member = call('ZRANGEBYLEX', q.keys[DELAYED], from, upto, 'LIMIT', 0, 1)[1]
  return member and sub(member, #order + 1, #order + DIGITS) + 0
end

-- Moves the virtual time of a parent on, as that of the queue is, and meets some of those that it has passed.
local function advance(q, a, score)
  local virtual, seen_at = clock_of(a)
  local moved = Virtual.follow(q, virtual, q.now - seen_at, score, MOST_LEVELS, first_from, a)
  if not moved or has_ring(a) then return end
  a.queue = 'v' .. spell(moved) .. '.' .. spell(q.now)
  meet_idle(q, a, spell_place(Accounts.IDLE + moved) .. ';')
end

-- Chooses how many messages of each child are delivered, `child.by`, of this number. Returns those that give some.
function Children.choose(q, a, number)
  if has_ring(a) then
    empty_ring(q, a)
    Children.flush(q)
  end
  local ready, looked = Children.listed(q, a, '', number)
  if looked == 0 and not has_ring(a) then a.behind = 0 end -- it was counted, though nobody has it
  if #ready == 0 then return ready end
  local child = ready[1]
  local virtual = clock_of(a)
  advance(q, a, child.score)
  return Accounts.deal(q, ready, number, virtual, most_of, score_of)
end

-- Forgets the children that are left when a queue has parents no more, or a piece of them, if there are very many.
function Children.forget_all(q)
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], '[p', '[q', 'LIMIT', 0, MOST_FORGOTTEN)
  for _, member in ipairs(members) do
    local size, from = match(member, '^p(%d+):()')
    State.unset(q, 'c:' .. sub(member, from + size + DIGITS + 2))
    add(q, 'not_later', member)
  end
  count_places(q, -#members)
end
