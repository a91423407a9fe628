-- Since when messages wait: when the one that waits longest became deliverable, in ms of the server's clock.
local HEADS_SEEN = 100 -- streams and shard keys whose first message is looked at for the age of the queue
local ENTRIES_SEEN = 8 -- of one stream, where the first message of one shard key is looked for

-- The last byte that a member of a sorted set by name may go on with.
local LAST = '\255'

local function earlier(one, other)
  if not other then return one end
  return one and min(one, other + 0) or other + 0
end

-- Returns since when a holder, an account or the child of one, has something outside of the streams; nil if it has
-- nothing.
local function since_of_holder(q, holder)
  if holder.returned > 0 then
    local prefix = Waiting.prefix_of(holder.name)
    local member = call('ZRANGEBYLEX', q.keys[RETURNED], '[' .. prefix, '(' .. prefix .. LAST, 'LIMIT', 0, 1)[1]
    return member and match(member, ':(%d+)$') + 0
  end
  local record = Overflow.peek_record(q, holder, Waiting.overflow_base(holder.name))
  return record and match(record, '^%d+') + 0
end

-- Returns since when a shard key (with parents: a parent) has something outside of the streams; nil if it has nothing.
-- For a parent, the child whose turn comes next says so.
function Ages.since_outside(q, a)
  if a.behind == 0 then return nil end
  if not q.rules.parents then return since_of_holder(q, a) end
  local child = Overflow.peek_record(q, a, Waiting.ring_base(a))
  return child and since_of_holder(q, Waiting.child_of(q, child))
end

local function first_in_stream(q, number, key)
  local cursor = call('HGET', q.keys[META], 'h' .. number) or '0-0'
  local entry = call('XRANGE', key, '(' .. cursor, '+', 'COUNT', 1)[1]
  return entry and match(entry[1], '^%d+') + 0
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

local function first_due(q)
  local oldest
  if q.due_at >= q.now + 1 then return nil end
  for _, name in ipairs(call('ZRANGEBYSCORE', q.keys[DUE], '-inf', q.now, 'LIMIT', 0, HEADS_SEEN)) do
    local prefix = Waiting.prefix_of(name)
    local member = call('ZRANGEBYLEX', q.keys[DELAYED], '[' .. prefix, '(' .. prefix .. LAST, 'LIMIT', 0, 1)[1]
    local at = member and sub(member, #prefix + 1, #prefix + 14) + 0
    if at and at <= q.now then oldest = earlier(oldest, at) end
  end
  return oldest
end

-- Returns since when the message waits that waits longest, of the heads of the streams and of those whose turn comes
-- next, of what time has brought, and of leases that are over; -1 if none does.
function Ages.oldest(q)
  local oldest = nil
  for number = 0, min(#q.ready, HEADS_SEEN) - 1 do
    local key = q.keys[19 + number]
    if byte(q.ready, number + 1) == 49 and key then oldest = earlier(oldest, first_in_stream(q, number, key)) end
  end
  local list = call('ZRANGE', q.keys[TURNS], 0, HEADS_SEEN - 1, 'WITHSCORES')
  local names = {}
  for at = 1, #list, 2 do
    if list[at + 1] + 0 < Accounts.IDLE then names[#names + 1] = list[at] end
  end
  Accounts.load_accounts(q, names)
  for _, name in ipairs(names) do oldest = earlier(oldest, Ages.since_outside(q, q.accounts[name])) end
  local lease = call('ZRANGEBYSCORE', q.keys[LEASES], '-inf', q.now, 'WITHSCORES', 'LIMIT', 0, 1)
  oldest = earlier(earlier(oldest, lease[2] and ceil(lease[2])), first_due(q))
  return oldest and max(0, oldest) or -1
end
