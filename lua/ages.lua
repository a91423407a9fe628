-- Since when messages wait: when the one that waits longest became deliverable, in ms of the server's clock.
local HEADS_SEEN = 100 -- streams whose first message is looked at for the age of the queue
local TURNS_SEEN = 64 -- shard keys whose turn comes next, and shard keys whose turn comes last
local LOOKS = 500 -- messages that were given back, and children of parents
local ENTRIES_SEEN = 8 -- of one stream, where the first message of one shard key is looked for
local ENTRIES_BEHIND = 64 -- of one stream, behind those, if something is still missing
local ENTRIES_LOOKED_AT = 600 -- of all streams, before no more is looked for behind those

-- The last byte that a member of a sorted set by name may continue with.
local LAST = '\255'

local function earlier(one, other)
  if not other then return one end
  return one and min(one, other + 0) or other + 0
end

-- Returns since when a holder, an account or the child of one, has something outside of the streams; nil if it has
-- nothing. Messages that were given back are in the order of their numbers, so all are looked at, as long as `looks`
-- lasts.
local function since_of_holder(q, holder, looks)
  local since = nil
  if holder.returned > 0 then
    local prefix = Waiting.prefix_of(holder.name)
    local most = min(holder.returned, max(1, looks.left))
    looks.left, looks.is_all = looks.left - most, looks.is_all and most == holder.returned
    local members = call('ZRANGEBYLEX', q.keys[RETURNED], '[' .. prefix, '(' .. prefix .. LAST, 'LIMIT', 0, most)
    for _, member in ipairs(members) do since = earlier(since, match(member, ':(%d+)$')) end
  end
  local record = Overflow.peek_record(q, holder, Waiting.overflow_base(holder.name))
  return record and earlier(since, match(record, '^%d+')) or since
end

-- Returns since when one of the children of a parent has something outside of the streams.
local function since_of_children(q, a, looks)
  local since = nil
  local children = Children.listed(q, a, '', max(1, looks.left))
  looks.left = looks.left - #children
  for _, child in ipairs(children) do since = earlier(since, since_of_holder(q, child, looks)) end
  looks.is_all = looks.is_all and looks.left > 0
  return since
end

-- Returns since when a shard key (with parents: a parent) has had something that came due, and that no read has seen.
local function since_due(q, a)
  if q.due_at >= q.now + 1 then return nil end
  local prefix = Waiting.prefix_of(a.name)
  local member = call('ZRANGEBYLEX', q.keys[DELAYED], '[' .. prefix, '(' .. prefix .. LAST, 'LIMIT', 0, 1)[1]
  local at = member and sub(member, #prefix + 1, #prefix + 14) + 0
  return at and at <= q.now and at or nil
end

-- Begins a look at a number of messages. `is_all` says in the end whether no more were there.
function Ages.begin_looks(most) return {left = most, is_all = true} end

-- Returns since when a shard key (with parents: a parent) has something outside of the streams; nil if it has nothing.
-- `brought` is what time has brought it (`Present`).
function Ages.since_outside(q, a, brought, looks)
  if a.behind == 0 then return nil end
  local since = q.rules.parents and since_of_children(q, a, looks) or nil
  if not q.rules.parents then since = since_of_holder(q, a, looks) end
  return earlier(earlier(since, brought.since[a.name]), since_due(q, a))
end

-- Says whether an entry of a stream may be delivered: its shard key is not paused, and its limits allow one more.
local function may_come(q, fields)
  if fields[1] ~= 'K' or not Messages.is_ours(fields) then return true end
  return Limits.allowance(Accounts.find_account(q, Rules.owner_of(q.rules, fields[2])), q.now) > 0
end

-- Returns since when the first entry of a stream waits that may be delivered; nil if it is not among the first ones.
local function first_in_stream(q, number, key, looks)
  local cursor = call('HGET', q.keys[META], 'h' .. number) or '0-0'
  for _, count in ipairs({1, ENTRIES_SEEN}) do -- mostly the first one says it
    local entries = call('XRANGE', key, '(' .. cursor, '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      if may_come(q, entry[2]) then return match(entry[1], '^%d+') + 0 end
    end
    if #entries < count then return nil end
  end
  looks.is_all = false
end

-- Looks at the next entries of a stream for the first of each that is `wanted`. The owners of all are noted in
-- `owners`, if it is given. Returns the last entry id, nil if there are no more.
local function look_in_stream(q, key, after, count, looks, owners)
  local entries = call('XRANGE', key, '(' .. after, '+', 'COUNT', count)
  looks.left = looks.left - #entries
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local name = fields[1] == 'K' and Messages.is_ours(fields) and Rules.owner_of(q.rules, fields[2])
    if name and owners then owners[name] = true end
    local one = looks.wanted[name]
    if one then
      one.since, one.seen = earlier(one.since, match(entry[1], '^%d+')), one.seen + 1
      looks.missing = looks.missing - 1
    end
  end
  return #entries == count and entries[count][1] or nil
end

-- Returns what is wanted of these accounts in the streams: by name since when its first message waits, and how many of
-- its messages were `seen`; and how many there are in all.
local function want_of(q, names)
  local wanted, missing = {}, 0
  for _, name in ipairs(names) do
    if not wanted[name] then
      local a = q.accounts[name]
      wanted[name], missing = {since = nil, seen = 0}, missing + a.taken
    end
  end
  return wanted, missing
end

-- Looks for the first messages of these accounts in the streams that are declared from `first` on: at the heads, and
-- as long as something of them is missing behind these. It looks at the heads of the first `streams` in any case, and
-- notes in `owners` whose they are. Returns {since, seen} by name.
function Ages.look_in_streams(q, names, first, owners, heads)
  local wanted, missing = want_of(q, names)
  local looks = {wanted = wanted, missing = missing, left = ENTRIES_LOOKED_AT}
  local fields = {nil}
  local after = {nil}
  for at = first, #q.keys do fields[#fields + 1] = 'h' .. match(q.keys[at], '%d+$') end
  if #fields == 0 then return wanted end
  local cursors = call('HMGET', q.keys[META], unpack(fields)) -- at most 128: the streams
  for at = 1, #fields do
    if at > heads and looks.missing <= 0 then break end
    local noted = at <= heads and owners or nil
    after[at] = look_in_stream(q, q.keys[first + at - 1], cursors[at] or '0-0', ENTRIES_SEEN, looks, noted)
  end
  for at = 1, #fields do
    if looks.missing <= 0 or looks.left <= 0 then break end
    if after[at] then look_in_stream(q, q.keys[first + at - 1], after[at], ENTRIES_BEHIND, looks) end
  end
  return wanted
end

-- Loads the accounts of shard keys whose turn comes next, and of those whose turn comes last: the one that waits
-- longest is mostly among these.
local function load_ends_of_turns(q)
  local key = q.keys[TURNS]
  local upto = '(' .. spell(Accounts.IDLE)
  Accounts.load_accounts(q, call('ZRANGEBYSCORE', key, '-inf', upto, 'LIMIT', 0, TURNS_SEEN))
  Accounts.load_accounts(q, call('ZREVRANGEBYSCORE', key, upto, '-inf', 'LIMIT', 0, TURNS_SEEN))
end

-- Returns since when the message waits that waits longest of those that may be delivered now, -1 if none does; and
-- whether all that waits was looked at. `brought` is what time has brought to the queue (`Present.of_queue`).
function Ages.oldest(q, brought)
  local oldest = nil
  local looks = Ages.begin_looks(LOOKS)
  for number = 0, min(#q.ready, HEADS_SEEN) - 1 do
    local key = q.keys[19 + number]
    if byte(q.ready, number + 1) == 49 and key then oldest = earlier(oldest, first_in_stream(q, number, key, looks)) end
  end
  load_ends_of_turns(q)
  local turns = 0
  for _, name in ipairs(q.names) do
    local a = q.accounts[name]
    if a.behind > 0 and Limits.allowance(a, q.now) > 0 then
      turns, oldest = turns + (a.taken == 0 and 1 or 0), earlier(oldest, Ages.since_outside(q, a, brought, looks))
    end
  end
  return oldest and max(0, oldest) or -1, looks.is_all and turns >= q.turns and #q.ready <= HEADS_SEEN
end
