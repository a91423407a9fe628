-- Since when messages wait: when the one that waits longest became deliverable, in ms of the server's clock.
local HEADS_SEEN = 100 -- streams whose first message is looked at for the age of the queue
local TURNS_SEEN = 64 -- shard keys whose turn comes next, and shard keys whose turn comes last
local LOOKS = 500 -- messages that were given back, and children of parents
local ENTRIES_SEEN = 8 -- of one stream, where the first message of one shard key is looked for

-- The last byte that a member of a sorted set by name may go on with.
local LAST = '\255'

local function earlier(one, other)
  if not other then return one end
  return one and min(one, other + 0) or other + 0
end

-- Returns since when a holder, an account or the child of one, has something outside of the streams; nil if it has
-- nothing. What was given back is in the order of its numbers, so all of it is looked at, as long as `looks` lasts.
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

-- Begins a look at so many messages. `is_all` says in the end whether no more were there.
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

-- Returns since when something of this owner waits in a stream, if it is among the first entries. The owners of all of
-- these are noted in `owners`.
function Ages.since_in_stream(q, number, key, owner, owners)
  local cursor = call('HGET', q.keys[META], 'h' .. number) or '0-0'
  local since
  for _, entry in ipairs(call('XRANGE', key, '(' .. cursor, '+', 'COUNT', ENTRIES_SEEN)) do
    local fields = entry[2]
    local name = fields[1] == 'K' and Messages.is_ours(fields) and Rules.owner_of(q.rules, fields[2])
    if name then owners[name] = true end
    if name == owner and not since then since = match(entry[1], '^%d+') + 0 end
  end
  return since
end

-- Loads the accounts of shard keys whose turn comes next, and of those whose turn comes last: who waits longest is
-- mostly among these.
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
