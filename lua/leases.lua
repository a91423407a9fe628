-- `leases`: token -> when it ends, in ms. A token is "place:id:attempt:holder:marks:key". The place is where the body
-- lies: the number of a stream, 'd' (in `bodies`) or 'l' (the legacy stream). The marks: 'e' an error is stored of the
-- message, 'u' it has a unique key, 'l' its last lease ended, then '-' if it is on no account, or 'f' and the time of
-- the read in ms if its time is charged. Since every delivery is counted in flight, whatever ends it comes here.

function Leases.grant(q, a, key, place, id, attempt, flags)
  local mark = '-'
  if a then
    mark = ''
    if q.contested then -- somebody else waits while this one is worked on
      -- An account that was idle has no credit for that time. One that waits keeps what is due to it, also while others
      -- are served first since they have fewer in flight.
      if not a.served or a.flight == 0 and a.behind == 0 then a.served = max(a.served or q.virtual, q.virtual) end
      mark = q.mark
    end
    a.flight = a.flight + 1
    -- A token of the rate is taken for each delivery, also of a message that was delivered before.
    if a.ruled and a.interval > 0 then a.full_at = Limits.full_after(a.full_at, a.interval, q.now) end
  end
  local token = place .. ':' .. id .. ':' .. attempt .. ':' .. q.holder .. ':' .. flags .. mark .. ':' .. key
  local granted = q.granted
  local n = #granted
  granted[n + 1], granted[n + 2] = q.ends_text, token
  q.found = q.found + 1
  return flags .. mark
end

Leases.TOKEN = '^([^:]+):([^:]+):(%d+):[^:]*:([^:]*):(.*)$' -- place, id, attempt, marks and key

function Leases.read_token(token) return match(token, Leases.TOKEN) end

local MOST_TOLD = 3600000 -- ms that a delivery may be charged

-- Reads what a delivery costs in ms: a time that was measured, of which its age is believed, or '=' and what a consumer
-- told in place of it.
local function read_cost(text, age)
  local told, number = match(text, '^(=?)([%d.]+)$') -- (of "nan" no number is made)
  return max(0, min(tonumber(number or 0) or 0, told == '=' and MOST_TOLD or age))
end

-- Charges an account with a delivery, if its marks say so: `messages` is 1 where it ends, which costs 1 ms, and `cost`
-- is what it costs, nil for nothing, or 'age' for all of its time until `till`.
function Leases.charge(q, a, marks, messages, cost, till)
  local since = byte(marks) == 102 and sub(marks, 2) or match(marks, 'f(%d+)$') -- 102 is 'f': mostly it is the first
  if not since then return end
  if not cost or q.rules.is_by_messages then
    cost = 0
  else
    cost = cost == 'age' and max(0, till - since) or read_cost(cost, till - since)
  end
  a.served = (a.served or q.virtual) + floor((messages + cost) * 10 / (a.weight or 1) + 0.5)
end

-- One less is in flight, and the time that it took is charged, unless the cost is 'nothing'.
function Leases.end_flight(q, a, marks, cost, till)
  -- A delivery without an account was counted nowhere, so nothing is counted down.
  if byte(marks, -1) == 45 then return end -- '-': it is on no account
  -- (An account that another program has spoilt begins with nothing in flight.)
  if a.flight > 0 then a.flight = a.flight - 1 end
  if marks ~= '' and cost ~= 'nothing' then Leases.charge(q, a, marks, 1, cost, till) end
end

-- The flags that stay with a message when its lease is over.
function Leases.flags_in(marks) return match(marks, '^[eul]*') end

-- Notes for the journal what becomes of a message that has a body of its own. Only its body knows the id where it did
-- not come from a stream, and how often it was delivered before it was redriven.
function Leases.note_end(q, kind, place, id, key, attempt)
  if not q.events then return end
  local body = place == 'd' and call('HGET', q.keys[BODIES], id)
  if not body then return Journal.note_event(q, kind, id .. '-' .. place, key, attempt) end
  local origin, owner, attributes = Messages.head_of_body(body)
  local full_id = Messages.message_id(id, origin, owner ~= '' and owner or key)
  local is_over = kind == 'c' or kind == 'g' -- it is told without a count
  local before = is_over and 0 or Messages.deliveries_before(attributes)
  Journal.note_event(q, kind, full_id, owner ~= '' and owner or key, attempt + before)
end

-- A message that was cancelled while it was in flight is gone with its lease. Says whether it was.
function Leases.end_cancelled(q, place, id, key)
  if q.cancels == 0 or call('SREM', q.keys[CANCELLED], place .. ':' .. id) == 0 then return false end
  q.cancels = q.cancels - 1
  Leases.note_end(q, 'c', place, id, key, 0)
  if place == 'd' then
    Messages.drop_body(q, place, id)
    add(q, 'without_error', id)
  end
  return true
end

-- Ends a lease that is over and that nobody settled. A message that was cancelled meanwhile is gone with it.
local function end_lease(q, place, id, attempt, marks, key, till)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
  -- Until the end of the lease, not until now: nobody is charged for the time in which no reader came by.
  Leases.end_flight(q, a, marks, 'age', till)
  if Leases.end_cancelled(q, place, id, key) then return end
  Leases.note_end(q, 'l', place, id, key, attempt)
  local flags = Leases.flags_in(marks)
  if find(flags, 'u', 1, true) then
    local is_over = q.rules.deliveries > 0 and attempt + 0 >= q.rules.deliveries -- it goes to the dead letters
    Unique.note_unique(q, call('HGET', q.keys[BODIES], id) or '', id, is_over and 'p' or 'w')
  end
  -- Not an error's text, which would be one more write for each lease that ends: the flag stands for it (`error_of`).
  if not find(flags, 'l', 1, true) then flags = flags .. 'l' end
  Waiting.give_back(q, a, key, place, id, attempt .. flags, till)
  Notifications.notify_reader(q)
end

-- Takes back a piece of the leases that ended before `till`. They lie by time: a shard key with many that ended first
-- hides the others. So while there are more, those that wait are served in one round only: each shard key that waited
-- before, or came to wait since, stands for one message (`round`). Who is hidden waits for no second one of anybody.
function Leases.take_ended(q, till)
  local key = q.keys[LEASES]
  local list = call('ZRANGEBYSCORE', key, '-inf', till, 'WITHSCORES', 'LIMIT', 0, LEASES_PIECE)
  local tokens, names = {}, {}
  local came = 0
  for at = 1, #list, 2 do
    local _, _, _, _, owner = Leases.read_token(list[at])
    tokens[#tokens + 1], names[#names + 1] = list[at], Rules.owner_of(q.rules, owner)
  end
  if #tokens > 0 then
    -- Before ZREM, the first effect of a read: the messages are given back below, and no key may refuse that.
    Types.look_at_all(q)
    call('ZREM', key, unpack(tokens)) -- at most 96: a piece
    Accounts.load_accounts(q, names)
    for at, token in ipairs(tokens) do
      local place, id, attempt, marks, owner = Leases.read_token(token)
      local a = q.accounts[names[at]]
      local before = a.behind
      end_lease(q, place, id, attempt, marks, owner, list[2 * at] + 0)
      if before == 0 and a.behind > 0 then came = came + 1 end
    end
    if q.places then q.places = q.places + #tokens end
  end
  -- The first lease that is left is looked up, so `lease_at` is exact after this. (The sentinel is always there.)
  local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  q.lease_at = min(head + 0, FAR)
  q.is_catching_up = q.lease_at <= till
  q.piece = max(LEAST_PIECE, q.piece - #tokens) -- of what else time has brought
  State.put_odd(q, 'round', q.is_catching_up and spell((q.odd.round or q.turns) + came) or '')
  q.more = q.more or q.is_catching_up
end
