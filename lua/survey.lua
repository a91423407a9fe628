-- Verbs that tell who has what: accounts, present, tenant, outside, runs, waiting. They only read, a piece in each
-- call.

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

-- @verb accounts | no-writes: a page of the shard keys (or parents) that have something.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: {} when there is no such queue | {cursor to continue from, '0' at the end, {name, "in streams|in flight|held
--        back|limited, among the held back|delayed|ahead", '1' if it waits in `turns`, ...}}
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

-- @verb present | no-writes: the present numbers of some shard keys (or parents), which time may have changed since
--   their accounts were written.
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

-- Returns the backlogs of the others that this call knows and that have one.
local function backlogs_of_others(q, name)
  local found = {}
  for _, other in ipairs(q.names) do
    local a = q.accounts[other]
    local backlog = a.taken + a.behind
    if other ~= name and backlog > 0 then found[#found + 1], found[#found + 2] = other, backlog end
  end
  return found
end

-- Returns what one of several has: a row of the reply of `tenant`.
local function row_of(q, name, in_streams, brought, looks)
  local a = q.accounts[name]
  local outside = Ages.since_outside(q, a, brought, looks)
  local since = in_streams.since
  if outside and (not since or outside < since) then since = outside end
  local parts = Limits.parts_of(a.limits, q.now)
  local plan = Limits.plan_of(parts)
  local planned = q.rules.plans[plan or '']
  if planned then parts[1], parts[2], parts[3] = planned[1], planned[2], planned[3] end
  local limits = a.limits ~= '-' and Limits.spell_own(parts) or ''
  local weight = a.limits ~= '-' and a.weight or parts[6]
  local age = since and spell(since) or ''
  return {spell_account(q, a), weight, limits, plan or '', spell_uses(q, name), age, in_streams.seen}
end

-- @verb tenant | no-writes: what some shard keys (or parents) have, and of one some others.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: some of those that they may use, at most 128
-- ARGV[1] heads: the number of streams, the first ones, whose heads show other waiting shard keys; 0: no others
-- ARGV[2..] names: shard keys or parents, at most 50
-- Reply: {} when there is no such queue
--        | {now, {row, ...}, {shard key, backlog, ...}: others that wait at the heads of these streams, or have much,
--        if there are any}. A row is {"in streams|in flight|held back|of these limited|delayed|ahead", weight,
--        "cap rate burst until" of its own limits or those of its plan or '', the plan or '', "keys|dead letters|bytes
--        of results", since when its first message has been deliverable (ms, '' if nothing is found), how many of its
--        messages in the streams were looked at}
function verbs.tenant(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'count'}, {'key_or_none'}, 50)
  if #KEYS > 18 + 128 then Arguments.refuse('there are ' .. #KEYS .. ' keys') end
  Arguments.check_own(KEYS, 19, 's')
  local q = open_survey(KEYS)
  if not q then return {} end
  local heads = ARGV[1] + 0
  local names = {unpack(ARGV, 2)} -- at most 50: the names
  local owners = {}
  Accounts.load_accounts(q, names)
  local in_streams = Ages.look_in_streams(q, names, 19, owners, heads)
  if heads > 0 then note_some(q, owners) end
  load_owners(q, owners)
  local brought = Present.of_accounts(q)
  local looks = Ages.begin_looks(MOST_LOOKS)
  local rows = {nil}
  for at, name in ipairs(names) do rows[at] = row_of(q, name, in_streams[name], brought, looks) end
  return {q.now, rows, heads > 0 and backlogs_of_others(q, names[1]) or {}}
end

local MAX_NAMED = 1000 -- of each index, where the names of those are looked for whose messages lie outside of streams

-- Notes the owners of messages that were given back, and that come due or may continue.
local function note_returned(q, found)
  local members = call('ZRANGE', q.keys[RETURNED], 1, MAX_NAMED) -- the first one is the sentinel
  for _, member in ipairs(members) do
    local size, from = match(member, '^(%d+):()')
    if size then found.names[Rules.owner_of(q.rules, sub(member, from, from + size - 1))] = true end
  end
  if call('ZCARD', q.keys[RETURNED]) > MAX_NAMED then found.is_all = false end
end

local function note_owners(q, found, tokens)
  for _, token in ipairs(tokens) do
    local place, _, _, _, key = Leases.read_token(token)
    if place then found.names[Rules.owner_of(q.rules, key)] = true end
  end
end

-- Notes members of an index by time, up to some score.
local function note_members(q, found, place, upto)
  local members = call('ZRANGEBYSCORE', q.keys[place], '-inf', upto, 'LIMIT', 0, MAX_NAMED)
  for _, name in ipairs(members) do found.names[name] = true end
  return #members < MAX_NAMED
end

-- Notes accounts with messages that limits hold back: all that are paused, and others that wait for a token (`due`) or
-- have as much in flight as they may have (`leases`).
local function note_limited(q, found, limits)
  local page = call('HSCAN', limits, '0', 'COUNT', MAX_NAMED)
  for at = 1, #page[2], 2 do
    if match(page[2][at + 1], '^[^,]*,[^,]*,[^,]*,(%d+),') ~= '0' then found.names[page[2][at]] = true end
  end
  local are_all_due = note_members(q, found, DUE, '(' .. spell(NEVER))
  note_owners(q, found, call('ZRANGE', q.keys[LEASES], 0, MAX_NAMED - 1))
  found.is_all = found.is_all and are_all_due and page[1] == '0' and call('ZCARD', q.keys[LEASES]) <= MAX_NAMED
end

-- @verb outside | no-writes: those whose first message may lie outside of the streams, if they are not too many.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] limits: limits and weights of shard keys that have any
-- Reply: {} when there is no such queue | {'1' if these are all but for some that time has changed, the digits of
--        `ready`, {shard key (or parent), ...}}
function verbs.outside(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18, 'limits')
  Arguments.check(ARGV, {})
  local q = State.open_call(KEYS, 18, 'ready')
  if not q then return {} end
  local found = {names = {}, is_all = true}
  -- The changes that time has brought since somebody read.
  note_members(q, found, DUE, q.now + 0.999)
  local ended = Ended.list(q, MAX_NAMED)
  local tokens = {nil}
  for at = 1, #ended, 2 do tokens[#tokens + 1] = ended[at] end
  note_owners(q, found, tokens)
  if q.behind > 0 then
    found.is_all = note_members(q, found, TURNS, '(' .. spell(Accounts.IDLE))
    note_returned(q, found)
    if q.behind ~= q.servable then note_limited(q, found, KEYS[19]) end
  end
  local names = {nil}
  for name in pairs(found.names) do names[#names + 1] = name end
  return {found.is_all and '1' or '', q.values[5], names}
end

-- @verb runs | no-writes: since when the first message outside of the streams has been deliverable, of some shard keys.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1..] names: of shard keys (or parents), at most 250
-- Reply: {name, time in ms, ...} of those that have any
function verbs.runs(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {}, {'key_or_none'}, 250)
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

local MAX_ENTRIES = 1000 -- of all streams of a call

-- @verb waiting | no-writes: the shard keys of a page of what waits in some streams, and since when each message has
-- been deliverable.
-- KEYS[1] meta: the streams' cursors
-- KEYS[2..] streams: those, at most 32
-- ARGV[1] count: of messages of each stream; of many streams less
-- ARGV[2..] after: an entry id of each stream, '' to start
-- Reply: {entry id to continue after, '' at the end; {shard key, time in ms, ...}; ... of each stream}
function verbs.waiting(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check(ARGV, {'count'}, {'id_or_none'}, 32)
  Arguments.check_own(KEYS, 2, 's')
  if #KEYS ~= #ARGV then Arguments.refuse('there are ' .. #KEYS .. ' keys') end
  local count = max(1, min(ARGV[1] + 0, floor(MAX_ENTRIES / max(1, #KEYS - 1))))
  local told = {nil}
  for at = 2, #KEYS do
    local after = ARGV[at] ~= '' and ARGV[at] or call('HGET', KEYS[1], 'h' .. match(KEYS[at], '%d*$')) or '0-0'
    local entries = call('XRANGE', KEYS[at], '(' .. after, '+', 'COUNT', count)
    local found = {nil}
    for _, entry in ipairs(entries) do
      if entry[2][1] == 'K' then found[#found + 1], found[#found + 2] = entry[2][2], match(entry[1], '^%d+') end
    end
    told[#told + 1], told[#told + 2] = #entries == count and entries[count][1] or '', found
  end
  return told
end
