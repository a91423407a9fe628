-- `leases`: token -> when it ends, in ms (see `spell_end`). A token is "place:id:attempt:holder:marks:key". The place
-- is where the body lies: the number of a stream, 'd' (in `bodies`) or 'l' (the legacy stream). The marks: 'e' an error
-- is stored of the message, 'u' it has a unique key, 'l' its last lease ended, 'L' so it did, and that is counted
-- (failures.lua), then '-' if it is on no account, or 'f' and the time of the read in ms if its time is charged. Since
-- every delivery is counted in flight, whatever ends it comes here.

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
    if q.rules.parents then Children.begin_delivery(q, a, key) end
    -- A token of the rate is taken for each delivery, also of a message that was delivered before.
    if a.ruled and a.interval > 0 then a.full_at = Limits.full_after(a.full_at, a.interval, q.now) end
  end
  local marks = flags == '' and mark or flags .. mark
  local token = place .. ':' .. id .. ':' .. attempt .. ':' .. q.holder .. ':' .. marks .. ':' .. key
  local granted = q.granted
  local n = #granted
  granted[n + 1], granted[n + 2] = q.ends_text, token
  q.found = q.found + 1
  return marks
end

-- A lease was granted of a message whose last one ended, and that is counted now: the mark says so in its token. So it
-- is counted once, also if the message is given back unseen.
function Leases.mark_counted(q, place, id, attempt, marks, key)
  marks = gsub(marks, 'l', 'L')
  q.granted[#q.granted] = concat({place, id, attempt, q.holder, marks, key}, ':')
  return marks
end

Leases.TOKEN = '^([^:]+):([^:]+):(%d+):[^:]*:([^:]*):(.*)$' -- place, id, attempt, marks and key

function Leases.read_token(token) return match(token, Leases.TOKEN) end

local MOST_TOLD = 3600000 -- ms that a delivery may be charged

-- Reads what a delivery costs in ms: a measured time, believed only as far as the delivery is old, or '=' and a cost
-- that a consumer reported in place of it. (Behind '~' is for how long it ran in all, where that is another time: for
-- the journal alone.)
local function read_cost(text, age)
  local told, number = match(text, '^(=?)([%d.]+)~?[%d.]*$') -- (of "nan" no number is made)
  local cost = tonumber(number or 0) or 0
  local most = told == '=' and MOST_TOLD or age
  if cost > most then cost = most end
  return cost > 0 and cost or 0
end

local function add_service(q, a, key, ms)
  if q.events then Journal.note_charge(q, ms) end
  local units = ms * 10 / (a.weight or 1) + 0.5
  a.served = (a.served or q.virtual) + (units - units % 1)
  if q.rules.parents then Children.charge(q, a, key, ms) end
end

-- Since when a delivery is charged, in ms: its read, if somebody else waited then; else nil.
local function charged_since(marks)
  return byte(marks) == 102 and sub(marks, 2) or match(marks, 'f(%d+)$') -- 102 is 'f': mostly it is the first
end

-- Says whether a delivery with these marks is counted on an account.
function Leases.is_counted(marks) return marks == '' or byte(marks, -1) ~= 45 end -- 45 is '-'

-- One less is in flight. A delivery without an account was counted nowhere, so nothing is counted down.
local function leave_flight(q, a, key, marks)
  if marks ~= '' and byte(marks, -1) == 45 then return end -- as `is_counted` says
  -- (An account that another program has spoilt begins with nothing in flight.)
  if a.flight > 0 then a.flight = a.flight - 1 end
  if q.rules.parents then Children.end_delivery(q, key) end
end

-- A delivery was settled: it is charged 1 ms and its cost, nil for nothing. A cost that is 'nothing' is not charged at
-- all.
function Leases.end_flight(q, a, key, marks, cost)
  leave_flight(q, a, key, marks)
  if marks == '' or cost == 'nothing' then return end
  local since = charged_since(marks)
  if not since then return end
  if not cost or q.rules.is_by_messages then cost = 0 else cost = read_cost(cost, q.now - since) end
  add_service(q, a, key, 1 + cost)
end

-- Charges a delivery whose lease is extended with its cost since it was last charged. (A holder that extends its lease
-- may continue for hours.) One that began while nobody waited is charged from when somebody does. Says whether it was.
function Leases.charge_so_far(q, a, key, marks, cost)
  if cost == '-' or not Leases.is_counted(marks) then return false end -- '-': nothing
  local since = charged_since(marks)
  if q.rules.is_by_messages or not since and q.shared + q.behind == 0 then return false end
  add_service(q, a, key, read_cost(cost, since and q.now - since or MOST_TOLD))
  return true
end

local LOGARITHM = 28 -- of more ms than any lease lasts

-- The score of a lease is the ms in which it ends. One that was charged when it was extended has a score that is less
-- than 1 ms lower: its part behind the point says how long before its end that was, as a logarithm, which is exact to
-- half a hundredth of that. So no lease needs another field, and `ceil` of any score is the end.
function Leases.spell_end(ends, uncharged)
  if not uncharged then return spell(ends) end
  return format('%.4f', ends - 1 + log(max(2, uncharged)) / LOGARITHM)
end

-- Until when the lease with this score was charged when it was extended, in ms; nil if it was not.
function Leases.charged_until(score)
  local part = score % 1
  return part > 0 and ceil(score) - exp(part * LOGARITHM) or nil
end

-- A lease ended that nobody settled: its time is charged until its end, so nobody pays for the time in which no reader
-- came by.
local function charge_ended(q, a, key, marks, score)
  leave_flight(q, a, key, marks)
  local since = Leases.charged_until(score) or charged_since(marks)
  if since then add_service(q, a, key, q.rules.is_by_messages and 1 or 1 + max(0, floor(ceil(score) - since + 0.5))) end
end

-- The flags that stay with a message when its lease is over.
function Leases.flags_in(marks) return match(marks, '^[eulL]*') end

-- Notes for the journal what becomes of a message that has a body of its own. Only its body knows the id where it did
-- not come from a stream, and how often it was delivered before it was redriven.
function Leases.note_end(q, kind, place, id, key, attempt)
  if not q.events then return end
  local body = place == 'd' and call('HGET', q.keys[BODIES], id)
  if not body then return Journal.note_event(q, kind, id .. '-' .. place, key, attempt) end
  local origin, owner, attributes = Messages.head_of_body(body)
  local full_id = Messages.message_id(id, origin, owner ~= '' and owner or key)
  local is_over = kind == 'c' or kind == 'g' -- it is reported without a count
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

-- Ends a lease that is over and that nobody settled. Says whether its message waits again: one that was cancelled
-- meanwhile is gone with it.
local function end_lease(q, place, id, attempt, marks, key, score)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
  charge_ended(q, a, key, marks, score)
  if Leases.end_cancelled(q, place, id, key) then return false end
  Leases.note_end(q, 'l', place, id, key, attempt)
  local flags = Leases.flags_in(marks)
  if find(flags, 'u', 1, true) then
    -- After its last delivery it goes to the dead letters.
    Unique.note_unique(q, call('HGET', q.keys[BODIES], id) or '', id, Ended.is_last(q, attempt) and 'p' or 'w')
  end
  -- Not an error's text, which would be one more write for each lease that ends: the flag stands for it (`error_of`).
  if not find(flags, 'l', 1, true) then flags = gsub(flags, 'L', '') .. 'l' end
  Waiting.give_back(q, a, key, place, id, attempt .. flags, ceil(score))
  Notifications.notify_reader(q)
  return true
end

-- Writes down where those lie that were taken back, for a call that continues with them.
function Leases.flush_taken(q)
  send(q, 'back', 'ZADD', RETURNED)
  Unique.save_noted(q)
end

-- Takes back one lease that is over, at once, for a verb that met its message. Says whether the message waits again:
-- one that was cancelled is gone.
function Leases.take_back(q, token)
  local place, id, attempt, marks, key = Leases.read_token(token)
  local score = call('ZSCORE', q.keys[LEASES], token) + 0
  Types.look_at_all(q)
  call('ZREM', q.keys[LEASES], token)
  local waits = end_lease(q, place, id, attempt, marks, key, score)
  Leases.flush_taken(q)
  return waits
end

-- Takes back a piece of the leases that ended before `till`. They lie by time: a shard key with many that ended first
-- hides the others. So while there are more, those that wait are served in one round only: each shard key that waited
-- before, or came to wait since, stands for one message (`round`). Those that are hidden wait for no second one.
function Leases.take_ended(q, till)
  local key = q.keys[LEASES]
  local list = call('ZRANGEBYSCORE', key, '-inf', till, 'WITHSCORES', 'LIMIT', 0, LEASES_PIECE)
  local members, tokens, names, scores, keys = {}, {}, {}, {}, {}
  local came = 0
  for at = 1, #list, 2 do
    local token = list[at]
    local place, _, _, _, owner = Leases.read_token(token)
    members[#members + 1] = token
    -- A field from another program is no lease: it only goes.
    if place then
      tokens[#tokens + 1], names[#names + 1], scores[#scores + 1] = token, Rules.owner_of(q.rules, owner), list[at + 1]
      keys[#keys + 1] = owner
    end
  end
  if q.rules.parents then Children.load(q, keys) end
  if #members > 0 then
    -- Before ZREM, the first effect of a read: the messages are given back below, and no key may refuse that.
    Types.look_at_all(q)
    call('ZREM', key, unpack(members)) -- at most 96: a piece
    Accounts.load_accounts(q, names)
    for at, token in ipairs(tokens) do
      local place, id, attempt, marks, owner = Leases.read_token(token)
      local a = q.accounts[names[at]]
      local before = a.behind
      end_lease(q, place, id, attempt, marks, owner, scores[at] + 0)
      if before == 0 and a.behind > 0 then came = came + 1 end
    end
    if q.places then q.places = q.places + #members end
  end
  -- The first lease that is left is looked up, so `lease_at` is exact after this. (The sentinel is always there.)
  local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  q.lease_at = min(ceil(head + 0), FAR)
  q.is_catching_up = q.lease_at <= till
  q.piece = max(LEAST_PIECE, q.piece - #members) -- among other things that time has brought
  State.put_odd(q, 'round', q.is_catching_up and spell((q.odd.round or q.turns) + came) or '')
  q.more = q.more or q.is_catching_up
end
