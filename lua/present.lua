-- The present numbers of shard keys. Only reads write down what time brings: leases that end, messages that come due,
-- pauses that are over. A verb that only looks changes the accounts of its own call as the next read would, and tells
-- those: so no figure depends on when somebody read last. It looks at a bounded piece, and estimates the rest.
local LOOKED_AT = 128 -- shard keys whose moment has come, and leases that are over, of the whole queue
local LEASES_LOOKED_AT = 1000 -- leases that are over, where those of some shard keys are looked for

-- The changes that time has brought: messages that came `due`, how many of these were `retrying`, leases that `ended`,
-- and how many of their messages are `gone`, since they were cancelled. `since` says when the first lease of a shard
-- key ended. (A message that had its last delivery waits like others: there is work for a read, which makes it a dead
-- letter.)
local function nothing() return {due = 0, retrying = 0, ended = 0, gone = 0, since = {}} end

-- Counts what came due of an account among what waits. Returns how many messages that is.
local function bring_due_of(q, a)
  if a.delayed == 0 or q.due_at >= q.now + 1 then return 0 end
  local prefix = Waiting.prefix_of(a.name)
  local number = call('ZLEXCOUNT', q.keys[DELAYED], '[' .. prefix, '(' .. prefix .. spell_sortable(q.now + 1))
  a.delayed, a.behind, q.behind = max(0, a.delayed - number), a.behind + number, q.behind + number
  return number
end

-- Returns how many of an account's messages that came due were delivered before.
local function count_retrying(q, a, number)
  local prefix = Waiting.prefix_of(a.name)
  local found = 0
  local looked = min(number, LOOKED_AT)
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, looked)
  for _, member in ipairs(members) do
    if Due.is_retrying(match(member, '^%d+:%w+:[%d-]+:(%w+):', #prefix + 1)) then found = found + 1 end
  end
  return looked > 0 and floor(found * number / looked) or 0
end

-- Counts what came due of the whole queue.
local function bring_due(q, brought)
  if q.due_at >= q.now + 1 then return end
  local names = call('ZRANGEBYSCORE', q.keys[DUE], '-inf', q.now + 0.999, 'LIMIT', 0, LOOKED_AT)
  Accounts.load_accounts(q, names)
  for _, name in ipairs(names) do
    local number = bring_due_of(q, q.accounts[name])
    brought.due = brought.due + number
    brought.retrying = brought.retrying + count_retrying(q, q.accounts[name], number)
  end
  if #names < LOOKED_AT then return end
  local all = call('ZCOUNT', q.keys[DUE], '-inf', q.now + 0.999)
  local more = floor(brought.due * (all - #names) / #names)
  brought.due, q.behind, q.servable = brought.due + more, q.behind + more, q.servable + more
end

-- Ends a delivery of an account as the next read will.
local function end_delivery(q, brought, a, token, ended_at)
  local place, id, _, marks = Leases.read_token(token)
  if byte(marks, -1) ~= 45 then a.flight = max(0, a.flight - 1) end -- '-': it is on no account
  if q.cancels > 0 and call('SISMEMBER', q.keys[CANCELLED], place .. ':' .. id) == 1 then
    brought.gone = brought.gone + 1
  else
    a.behind, q.behind = a.behind + 1, q.behind + 1
    -- The list begins with the lease that ended first.
    brought.since[a.name] = brought.since[a.name] or ended_at
  end
end

-- Ends the deliveries whose leases are over. With `are_wanted` only those of accounts that this call knows.
local function bring_ended(q, brought, most, are_wanted)
  local list = Ended.list(q, most)
  local owners, tokens, ends = {}, {}, {}
  for at = 1, #list, 2 do
    local place, _, _, _, key = Leases.read_token(list[at])
    if place then -- else another program wrote it
      owners[#owners + 1], tokens[#tokens + 1], ends[#ends + 1] = Rules.owner_of(q.rules, key), list[at], list[at + 1]
    end
  end
  if not are_wanted then Accounts.load_accounts(q, owners) end
  for at, owner in ipairs(owners) do
    local a = q.accounts[owner]
    if a then end_delivery(q, brought, a, tokens[at], ceil(ends[at])) end
  end
  return #list / 2
end

-- Returns how many of these leases that are over, behind the first `from`, are of messages that were cancelled, and how
-- many it looked at.
local function count_gone(q, from, most)
  local gone = 0
  local list = call('ZRANGEBYSCORE', q.keys[LEASES], '-inf', Ended.till(q), 'LIMIT', from, most)
  for _, token in ipairs(list) do
    local place, id = Leases.read_token(token)
    if place and call('SISMEMBER', q.keys[CANCELLED], place .. ':' .. id) == 1 then gone = gone + 1 end
  end
  return gone, #list
end

-- Counts the leases that are over, and ends a piece of them.
local function bring_all_ended(q, brought)
  if not Ended.may_be_some(q) then return end
  brought.ended = call('ZCOUNT', q.keys[LEASES], '-inf', Ended.till(q))
  local looked = bring_ended(q, brought, LOOKED_AT, false)
  local more = brought.ended - looked
  if more <= 0 then return end
  local gone, seen = 0, 0
  if q.cancels > 0 then gone, seen = count_gone(q, looked, LEASES_LOOKED_AT - LOOKED_AT) end
  gone = gone + floor((brought.gone + gone) * (more - seen) / (looked + seen))
  brought.gone, q.behind, q.servable = brought.gone + gone, q.behind + more - gone, q.servable + more - gone
end

-- Says whether something of an account waits for a turn.
local function has_turn(q, a) return a.behind > 0 and a.taken == 0 and Limits.allowance(a, q.now) > 0 end

-- Brings what time has brought to the whole queue into what this call knows of it, and returns how much that was.
function Present.of_queue(q)
  local brought = nothing()
  bring_due(q, brought)
  bring_all_ended(q, brought)
  for _, name in ipairs(q.names) do
    local a = q.accounts[name]
    local listed = a.listed == 1 and 1 or 0
    q.turns = q.turns + (has_turn(q, a) and 1 or 0) - listed
    Accounts.count_servable(q, a)
  end
  return brought
end

-- Does so for the accounts that this call knows.
function Present.of_accounts(q)
  local brought = nothing()
  for _, name in ipairs(q.names) do brought.due = brought.due + bring_due_of(q, q.accounts[name]) end
  bring_ended(q, brought, LEASES_LOOKED_AT, true)
  return brought
end

local SOON = 60000 -- ms

-- Returns when the first delayed message of an account comes due, nil if it has none, and how many do before `till`.
local function next_of(q, a, till)
  local prefix = Waiting.prefix_of(a.name)
  local from = '[' .. prefix .. spell_sortable(q.now + 1)
  local member = call('ZRANGEBYLEX', q.keys[DELAYED], from, '(' .. prefix .. '\255', 'LIMIT', 0, 1)[1]
  if not member then return nil, 0 end
  local at = sub(member, #prefix + 1, #prefix + 14) + 0
  if at >= till then return at, 0 end
  return at, call('ZLEXCOUNT', q.keys[DELAYED], from, '(' .. prefix .. spell_sortable(till))
end

-- Returns when the next delayed message comes due, in ms, and how many do within a minute from now. It looks at the
-- shard keys whose moment comes first. Where the moments of more of them than it looks at lie within the minute, it
-- estimates their number; and where all of these are none of messages, the next message comes at the last of them, or
-- later.
function Present.find_due_soon(q)
  local till = q.now + SOON + 1
  local list = call('ZRANGE', q.keys[DUE], 0, LOOKED_AT - 1, 'WITHSCORES')
  local names, first, number = {}, nil, 0
  for at = 1, #list, 2 do names[#names + 1] = list[at] end
  Accounts.load_accounts(q, names)
  for at, name in ipairs(names) do
    local moment, a = list[2 * at] + 0, q.accounts[name]
    -- (The sentinel comes last.)
    if moment >= till and (first or moment >= FAR) then break end
    if a.delayed > 0 then
      local its, more = next_of(q, a, till)
      first, number = its and min(first or its, its) or first, number + more
    end
  end
  local last = list[#list] + 0
  if #names < LOOKED_AT or last >= till then return first, number end
  return first or ceil(last), floor(number * call('ZCOUNT', q.keys[DUE], '-inf', '(' .. spell(till)) / #names)
end
