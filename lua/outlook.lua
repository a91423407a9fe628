-- The verb outlook: who waits and for what, some of them by chance where there are many, and when somebody last read.
-- Clients reckon what becomes of them (shardq/outlook).
local FIELDS_SEEN = 256 -- of the state, by chance: of a small queue all
local BLOCKS_SEEN = 96 -- of overflows, by chance: a shard key that has much has many
local MEMBERS_SEEN = 48 -- messages that were given back, and delayed ones, by chance
local TRIES_SEEN = 12 -- delayed messages of one shard key that are looked up: were they delivered before?

-- Notes whose members of a sorted set by name these are.
local function note_owners(q, members, owners)
  for _, member in ipairs(members) do
    local size, from = match(member, '^(%d+):()')
    if size then owners[Rules.owner_of(q.rules, sub(member, from, from + size - 1))] = true end
  end
end

-- Returns some shard keys (or parents): those asked for, some of all, and those of some of all messages that wait
-- outside of streams.
local function choose_owners(q, asked)
  local owners = {}
  for _, name in ipairs(asked) do owners[name] = true end
  for _, field in ipairs(call('HRANDFIELD', q.keys[META], FIELDS_SEEN)) do
    if sub(field, 1, 2) == 't:' then owners[sub(field, 3)] = true end
  end
  for _, field in ipairs(call('HRANDFIELD', q.keys[BODIES], BLOCKS_SEEN)) do
    local key = match(field, '^m(.*)\n%d+$')
    if key then owners[Rules.owner_of(q.rules, key)] = true end
  end
  note_owners(q, call('ZRANDMEMBER', q.keys[RETURNED], MEMBERS_SEEN), owners)
  note_owners(q, call('ZRANDMEMBER', q.keys[DELAYED], MEMBERS_SEEN), owners)
  return owners
end

-- Returns how many of the delayed messages of an account were delivered before, by a look at the first ones.
local function count_retrying(q, a)
  if a.delayed == 0 then return 0 end
  local prefix = Waiting.prefix_of(a.name)
  local from = '[' .. prefix .. spell_sortable(q.now + 1)
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], from, '(' .. prefix .. '\255', 'LIMIT', 0, TRIES_SEEN)
  local found = 0
  for _, member in ipairs(members) do
    if Due.is_retrying(match(member, '^%d+:%w+:[%d-]+:(%w+):', #prefix + 1) or '0') then found = found + 1 end
  end
  return #members > 0 and floor(found * a.delayed / #members + 0.5) or 0
end

-- Returns what an account has and may have, in numbers.
local function spell_chances(q, a)
  local allowance = a.ruled and max(0, min(EXACT, Limits.allowance(a, q.now))) or -1
  local pause = a.ruled and a.pause > q.now and a.pause or 0
  local rate = a.ruled and a.interval > 0 and 1000 / a.interval or 0
  return concat({
    a.taken, a.flight, a.behind, a.delayed, count_retrying(q, a), a.weight or 1, a.ruled and a.cap or 0,
    format('%.6f', rate), format('%.0f', allowance), format('%.0f', pause),
  }, ' ')
end

-- Returns when the last of the leases ends, 0 if there is none.
local function last_lease(q)
  local last = call('ZRANGE', q.keys[LEASES], -2, -1, 'WITHSCORES')
  for at = 2, #last, 2 do
    if last[at] + 0 < FAR then return ceil(last[at]) end -- the sentinel is behind all others
  end
  return 0
end

-- @verb outlook | no-writes: shard keys (or parents) that have something: all of a small queue, else those of some
-- messages and some more, by chance.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1..] names: shard keys or parents, at most 50, that are among them in any case
-- Reply: {} when there is no such queue | {now, how many fields the state has, how many of them were looked at, until
--        when a reader may be blocked (ms), when the last lease ends (ms, 0: there is none), the setting
--        visibility_timeout, time and number of the last message, "window parents total_cap total_rate", {name, "in
--        streams, in flight, held back, delayed, tried before (among the delayed), weight, max_in_flight, rate, how
--        many more may be delivered now (-1: any), until when it is paused (ms)" with a space between, ...}}
function verbs.outlook(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {}, {'key'}, 50)
  local q = State.open_call(KEYS, 18)
  if not q then return {} end
  local names, found = {}, {}
  for owner in pairs(choose_owners(q, ARGV)) do names[#names + 1] = owner end
  Accounts.load_accounts(q, names)
  Present.of_accounts(q)
  for _, name in ipairs(names) do
    found[#found + 1], found[#found + 2] = name, spell_chances(q, q.accounts[name])
  end
  local visibility, last = unpack(call('HMGET', KEYS[META], 'visibility_timeout', 'last')) -- at most 2: the fields
  local rules = q.rules
  local size = call('HLEN', KEYS[META])
  return {
    q.now, size, min(size, FIELDS_SEEN), format('%.0f', q.waiting), last_lease(q), visibility or '', last or '',
    concat({rules.window, rules.parents and 1 or 0, rules.total_cap, format('%.6f', rules.total_rate)}, ' '), found,
  }
end
