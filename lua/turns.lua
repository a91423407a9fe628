-- `turns`: a sorted set of the shard keys with a message that may be delivered now, by whose turn it is. Behind all
-- others, by IDLE + served, are shard keys with nothing waiting that are ahead of the virtual time, until it has passed
-- them: so nobody gains by leaving and coming back. (Fewest in flight first, then least service received:
-- docs/fairness.md.)
local MENDED = 4 -- so often a call looks again after it found shard keys at wrong places

-- Takes a shard key out. Messages without one (another program wrote them) are on the account without a name, whose
-- member is the sentinel: that goes back to its place.
local function leave(q, name)
  if name == '' then add(q, 'turn', NEVER, '') else add(q, 'turned', name) end
end

-- A shard key that comes back from a pause or for a token has no credit for the time in which its own limits blocked
-- it.
local function list_turn(q, a)
  if not a.served or a.listed ~= 1 and (a.ruled or a.flight == 0) then
    a.served = max(a.served or q.virtual, q.virtual)
  end
  local score = Accounts.score_of(a, q.virtual)
  if a.listed ~= 1 then
    q.turns = q.turns + 1
    if a.limits ~= '-' then Limits.count_turn(q, a, 1) end
  end
  -- Most calls leave the place as it is: then `turns` is not written.
  if a.score ~= score then add(q, 'turn', spell(score), a.name) end
  a.listed, a.score = 1, score
end

local function unlist_turn(q, a)
  q.turns, a.listed, a.score = q.turns - 1, 0, nil
  if a.limits ~= '-' then Limits.count_turn(q, a, -1) end
  leave(q, a.name)
end

-- A shard key with nothing waiting keeps what it has received as long as that is more than the virtual time and
-- somebody else waits; and a parent stays until its children are forgotten.
local function list_idle(q, a)
  if a.served > q.virtual and q.shared + q.behind > 0 or Children.may_be_kept(q, a) then
    if a.listed ~= 0 then return end
    add(q, 'turn', spell(Accounts.IDLE + a.served), a.name)
    State.put_odd(q, 'idle', '1')
    a.listed = 2
  else
    a.served = nil
    if a.listed == 2 then
      leave(q, a.name)
      a.listed = 0
    end
  end
end

local function note_moment(q, a, at)
  if a.look_at > 0 and at >= a.look_at then return end
  add(q, 'moments', spell_moment(at), a.name)
  a.look_at = at
  -- If the clock is set back after this, a moment that limits gave lies too far ahead: by `late` the next read notices
  -- (due.lua).
  if a.ruled and not q.last_due then State.put_odd(q, 'late', spell_moment(q.now)) end
  if at < q.due_at then q.due_at = at end
  if not q.found then Notifications.announce_moment(q, at) end -- a read has its own look at what is next
end

-- Puts an account where it belongs after what happened to it. The one place that writes `turns` and `due`; done twice,
-- it changes nothing.
function Turns.schedule(q, a)
  -- Messages in the streams were written before those that wait, so they go first: until then there is no turn.
  local waits = a.behind > 0 and a.taken == 0 and not (a.ruled and Limits.allowance(a, q.now) < 1)
  if waits then list_turn(q, a) elseif a.listed == 1 then unlist_turn(q, a) end
  if a.served and a.taken + a.flight + a.behind == 0 then list_idle(q, a) end
  -- One moment in `due` for both, the earlier one: the next delayed message, or a change of the limits.
  local at = a.ruled and Limits.moment_of_limits(a, q.now)
  if a.next_at and (not at or a.next_at < at) then at = a.next_at end
  if at then note_moment(q, a, at) end
end

function Turns.schedule_all(q)
  local names, accounts = q.names, q.accounts
  for at = 1, #names do
    local a = accounts[names[at]]
    if a.behind > 0 or a.listed > 0 or a.served or a.ruled or a.next_at then Turns.schedule(q, a) end
  end
end

-- Puts all accounts of the call where they belong, and notes what is known of them.
function Turns.save_accounts(q)
  local names, accounts = q.names, q.accounts
  for at = 1, #names do
    local a = accounts[names[at]]
    if a.behind > 0 or a.listed > 0 or a.served or a.ruled or a.next_at then Turns.schedule(q, a) end
    -- Before the account is written down: its text has this count.
    if a.ruled or a.behind ~= a.counted then Accounts.count_servable(q, a) end
    Accounts.save_account(q, a)
  end
end

-- First those who leave, then those who come: a shard key may have done both in one call.
function Turns.flush_turns(q)
  local lists = q.lists
  if not lists then return end
  if lists.turned then send(q, 'turned', 'ZREM', TURNS) end
  if lists.turn then send(q, 'turn', 'ZADD', TURNS) end
end

-- Looks at what is pending, and writes `turns` before all else of the call's end, as its look at that key.
function Turns.begin_effects(q)
  if not (q.dirty or q.lists) then return end
  Types.look_at_pending(q)
  Turns.flush_turns(q)
end

-- How many messages of an account wait that may be delivered now. While leases that ended are taken back, there may be
-- more of an account that has some in flight: tried messages go before new ones, so then it gives only those.
local function ready_of(q, a)
  if not q.is_catching_up or a.flight == 0 then return a.behind end
  return q.rules.parents and 0 or a.returned
end

-- Returns those at the head of `turns` that really may have something now. One that is found at a wrong place gets to
-- the right one. The score behind theirs is kept in `next_score`: that is looked at, too.
local function find_heads(q, need)
  q.has_read_turns = true
  for _ = 1, MENDED do
    local list = call('ZRANGE', q.keys[TURNS], '0', spell(need), 'WITHSCORES')
    local names = {nil}
    local ready = {nil}
    q.next_score = nil
    for at = 1, #list, 2 do
      local score = list[at + 1] + 0
      -- Behind these are only idle ones.
      if score >= Accounts.IDLE then break end
      if at > 2 * need then
        q.next_score = score
        break
      end
      names[#names + 1], list[at + 1] = list[at], score
    end
    Accounts.load_accounts(q, names)
    for at = 1, #names do
      local a, score = q.accounts[names[at]], list[2 * at]
      if a.listed ~= 1 then -- (the count is of those who say that they are listed)
        q.turns = q.turns + 1
        Limits.count_turn(q, a, 1)
      end
      a.listed, a.score = 1, score
      Turns.schedule(q, a)
      if a.listed == 1 and a.score == score and (not q.is_catching_up or ready_of(q, a) > 0) then
        ready[#ready + 1] = a
      end
    end
    -- Some stood at a wrong place: others may belong before those that were found, so `turns` is mended and looked at
    -- again.
    if not (q.lists and (q.lists.turn or q.lists.turned)) then return ready end
    Types.look_at_all(q)
    Turns.flush_turns(q)
  end
  -- This many wrong places come from a change of rules. Each round has mended some, and the next read continues.
  q.more = true
  return {}
end

-- Returns the score of the first in `turns` after a read that has looked there, -1 if nobody waits.
function Turns.first_score(q)
  local first = q.next_score or Accounts.IDLE
  local names, accounts = q.names, q.accounts
  for at = 1, #names do
    local a = accounts[names[at]]
    if a.listed == 1 and a.score and a.score < first then first = a.score end
  end
  return first < Accounts.IDLE and first or -1
end

-- Returns the same as it is now, for a call that changes nothing.
function Turns.look_at_first(q)
  local score = call('ZRANGE', q.keys[TURNS], '0', '0', 'WITHSCORES')[2]
  score = score and score + 0 or Accounts.IDLE
  return score < Accounts.IDLE and score or -1
end

local function most_of(q, a)
  local ready = q.is_catching_up and ready_of(q, a) or a.behind
  return a.ruled and min(ready, Limits.allowance(a, q.now)) or ready
end

local function score_of(_, a, virtual, more) return Accounts.score_of(a, virtual, more) end

-- Chooses how many messages of each are delivered, `a.by`.
function Turns.choose_turns(q, need)
  return Accounts.deal(q, find_heads(q, need), need, q.virtual, most_of, score_of)
end

-- Forgets an idle one, but for a parent of whose children something is kept. Says whether it is forgotten.
local function forget(q, a)
  local is_idle = a.flight + a.taken + a.behind == 0
  if is_idle and Children.are_kept(q, a) then return false end
  if is_idle then a.served = nil end
  a.listed = 0
  leave(q, a.name)
  return true
end

-- Forgets idle ones that the virtual time has passed, or any if nothing waits: a piece in each call.
function Turns.forget_idle(q)
  local nothing_waits = q.behind == 0
  local names = nothing_waits and call('ZRANGE', q.keys[TURNS], 0, 15)
    or call('ZRANGEBYSCORE', q.keys[TURNS], spell(Accounts.IDLE), spell(Accounts.IDLE + q.virtual), 'LIMIT', 0, PIECE)
  local are_all = nothing_waits and #names < 16
  if names[#names] == '' then names[#names] = nil end -- the sentinel
  Accounts.load_accounts(q, names)
  for _, name in ipairs(names) do
    local a = q.accounts[name]
    if a.listed ~= 1 and not forget(q, a) then are_all = false end
  end
  if are_all then State.put_odd(q, 'idle', '') end
end
