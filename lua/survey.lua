-- Verbs that tell who has what: accounts, present, tenant, runs, waiting. They only read, a piece in each call.

local MOST_LOOKS = 1000 -- messages that were given back, which one call looks at for ages

-- Begins a look at accounts.
local function open_survey(KEYS)
  return State.open_call(KEYS, 18)
end

-- Returns what an account has: "in streams|in flight|held back|of these limited|delayed|ahead". It is ahead
-- by how much more it has received than those whose turn it is, in 0.1 ms by weight.
local function spell_account(q, a)
  local limited = a.taken == 0 and max(0, a.behind - Limits.allowance(a, q.now)) or 0
  local ahead = max(0, (a.served or q.virtual) - q.virtual)
  return concat({a.taken, a.flight, a.behind, format('%d', limited), a.delayed, format('%d', ahead)}, '|')
end

-- @verb accounts | no-writes: a page of the shard keys (or parents) of which something is known.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: {} when there is no such queue | {cursor to go on from, '0' at the end, {name, "in streams|in flight|held
--        back|of these limited|delayed|ahead", '1' if it waits in `turns`, ...}}
function verbs.accounts(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'cursor', 'count'})
  local q = open_survey(KEYS)
  if not q then return {} end
  local found = {}
  local page = call('HSCAN', KEYS[META], ARGV[1], 'MATCH', 't:*', 'COUNT', ARGV[2])
  for at = 1, #page[2], 2 do
    local name = sub(page[2][at], 3)
    if not q.accounts[name] then Accounts.meet(q, name, page[2][at + 1]) end
  end
  Present.of_accounts(q)
  for _, name in ipairs(q.names) do
    local a = q.accounts[name]
    found[#found + 1], found[#found + 2], found[#found + 3] = name, spell_account(q, a), a.listed == 1 and '1' or ''
  end
  return {page[1], found}
end

-- @verb present | no-writes: what some shard keys (or parents) have at this moment, of which time may have changed it
-- since their accounts were written.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1..] names: of shard keys (or parents), at most 150
-- Reply: {name, "in streams|in flight|held back|of these limited|delayed|ahead", ...}
function verbs.present(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {}, {'key_or_none'}, 150)
  local q = open_survey(KEYS)
  if not q then return {} end
  local found = {}
  Accounts.load_accounts(q, ARGV)
  Present.of_accounts(q)
  for _, name in ipairs(q.names) do found[#found + 1], found[#found + 2] = name, spell_account(q, q.accounts[name]) end
  return found
end

-- Returns what one tenant uses of bounds: "keys|dead letters|bytes of results".
local function spell_uses(q, name)
  local kinds = call('HMGET', q.keys[META], 'D:' .. name, 'X:' .. name, 'R:' .. name)
  for at = 1, 3 do kinds[at] = match(kinds[at] or '0', '^%d+') end
  return concat(kinds, '|')
end

local FIELDS_SEEN = 64 -- of the state, by chance: of a small queue all
local BLOCKS_SEEN = 64 -- of overflows, by chance: a shard key that has much has many

-- Notes shard keys that may have much: those with blocks of overflows, and some of all.
local function note_some(q, owners)
  for _, field in ipairs(call('HRANDFIELD', q.keys[META], FIELDS_SEEN)) do
    if sub(field, 1, 2) == 't:' then owners[sub(field, 3)] = true end
  end
  for _, field in ipairs(call('HRANDFIELD', q.keys[BODIES], BLOCKS_SEEN)) do
    local key = match(field, '^m(.*)\n%d+$')
    if key then owners[Rules.owner_of(q.rules, key)] = true end
  end
end

-- Loads the accounts of these.
local function load_owners(q, owners)
  local names = {}
  for owner in pairs(owners) do names[#names + 1] = owner end
  Accounts.load_accounts(q, names)
end

-- Returns the backlogs of the others that this call knows, of those that have one.
local function backlogs_of_others(q, name)
  local found = {}
  for _, other in ipairs(q.names) do
    local a = q.accounts[other]
    local backlog = a.taken + a.behind
    if other ~= name and backlog > 0 then found[#found + 1], found[#found + 2] = other, backlog end
  end
  return found
end

-- @verb tenant | no-writes: what one shard key (or parent) has, and some others.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: some of those that it may use
-- ARGV[1] name: the shard key or parent
-- Reply: {} when there is no such queue
--        | {now, "in streams|in flight|held back|of these limited|delayed|ahead", weight,
--        "cap rate burst until" of its own limits or those of its plan or '', the plan or '', "keys|dead letters|bytes
--        of results", since when its first message has been deliverable (ms, '' if
--        nothing is found), {shard key, backlog, ...}: others that wait at the heads of these streams, or have much,
--        if there are any}
function verbs.tenant(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'key'})
  local q = open_survey(KEYS)
  if not q then return {} end
  local name, owners = ARGV[1], {}
  local a = Accounts.find_account(q, name)
  local oldest = nil
  for at = 19, #KEYS do
    local since = Ages.since_in_stream(q, match(KEYS[at], '%d+$'), KEYS[at], name, owners)
    if since and (not oldest or since < oldest) then oldest = since end
  end
  if #KEYS > 18 then note_some(q, owners) end
  load_owners(q, owners)
  local brought = Present.of_accounts(q)
  local outside = Ages.since_outside(q, a, brought, Ages.begin_looks(MOST_LOOKS))
  if outside and (not oldest or outside < oldest) then oldest = outside end
  local parts = Limits.parts_of(a)
  local plan = Limits.plan_of(parts)
  local planned = q.rules.plans[plan or '']
  if planned then parts[1], parts[2], parts[3] = planned[1], planned[2], planned[3] end
  local limits = a.limits ~= '-' and Limits.spell_own(parts) or ''
  local weight = a.limits ~= '-' and a.weight or parts[6]
  local since = oldest and spell(oldest) or ''
  local others = backlogs_of_others(q, name)
  return {q.now, spell_account(q, a), weight, limits, plan or '', spell_uses(q, name), since, others}
end

-- @verb runs | no-writes: since when the first message outside of the streams has been deliverable, of some shard keys.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1..] names: of shard keys (or parents), at most 150
-- Reply: {name, time in ms, ...} of those that have any
function verbs.runs(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {}, {'key_or_none'}, 150)
  local q = open_survey(KEYS)
  if not q then return {} end
  local found = {}
  Accounts.load_accounts(q, ARGV)
  local brought = Present.of_accounts(q)
  local looks = Ages.begin_looks(MOST_LOOKS)
  for _, name in ipairs(ARGV) do
    local since = Ages.since_outside(q, q.accounts[name], brought, looks)
    if since then found[#found + 1], found[#found + 2] = name, spell(since) end
  end
  return found
end

-- @verb waiting | no-writes: the shard keys of a page of what waits in one stream, and since when each message has been
-- deliverable.
-- KEYS[1] meta: the stream's cursor
-- KEYS[2..] streams: the stream
-- ARGV[1] number: of the stream
-- ARGV[2] after: an entry id, '' to start
-- ARGV[3] count: of messages
-- Reply: {entry id to go on after, '' at the end; {shard key, time in ms, ...}}
function verbs.waiting(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check(ARGV, {'streams', 'id_or_none', 'count'})
  local after = ARGV[2] ~= '' and ARGV[2] or call('HGET', KEYS[1], 'h' .. ARGV[1]) or '0-0'
  local entries = call('XRANGE', KEYS[2], '(' .. after, '+', 'COUNT', ARGV[3])
  local found = {}
  for _, entry in ipairs(entries) do
    if entry[2][1] == 'K' then found[#found + 1], found[#found + 2] = entry[2][2], match(entry[1], '^%d+') end
  end
  return {#entries == ARGV[3] + 0 and entries[#entries][1] or '', found}
end
