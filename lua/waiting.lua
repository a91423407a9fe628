-- The waiting messages of a shard key are one queue: first those given back, by number; then the new ones, in its
-- overflow by number, and between these those that came due for the first time, by when that was. `returned` is a
-- sorted set without scores, of members "size:key:<order>:place:id:attempts:since", so those of a shard key are
-- together. The order is <letter for the size of the number><number> of what was given back, 'd' and 14 digits of ms of
-- what came due. The place is where the body lies: 'd' in `bodies`, else the number of a stream. The attempts are the
-- deliveries so far, and flags: 'e' an error is stored, 'l' the last lease ended, 'u' it has a unique key, 'r' it was
-- rejected and waits for room among the dead letters. With parents the parent's own queue is a ring of its children,
-- each once; the rest is the child's. A child is there only while something of it waits, so there are never more
-- children than messages that wait.
local MOST_PASSED = 64 -- children whose messages were deleted by hand, which one call passes over

function Waiting.prefix_of(key) return #key .. ':' .. key .. ':' end

-- The letter in front of a number says how long it is, which puts 9 before 10.
function Waiting.order_of_number(id)
  local number = match(id, '%d+$')
  return char(64 + #number) .. number
end

function Waiting.order_of_time(ms) return 'd' .. spell_sortable(ms) end

local function spell_member(key, order, place, id, attempts, since)
  return concat({Waiting.prefix_of(key) .. order, place, id, attempts, spell(since)}, ':')
end

-- A child is "what waits of it, how much of that was given back, its overflow, its weight, how many more it gives in
-- this turn, the block of the ring that has its name". Its own account has only its weight.
function Waiting.child_of(q, key)
  if not q.children then q.children = {} end
  local child = q.children[key]
  if not child then
    -- A child of which nothing waits has no field: its weight is then known by its account only.
    local text, account = unpack(call('HMGET', q.keys[META], 'c:' .. key, 't:' .. key)) -- at most 2: the fields
    local behind, returned, queue, weight, turn, block =
      match(text or '0 0 - 1 0 0', '^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+)$')
    weight = not text and match(account or '', ',(%d+) %S+$') or weight
    child = new_child{
      name = key, behind = behind + 0, returned = returned + 0, queue = queue, weight = weight + 0, turn = turn + 0,
      is_listed = text and true, block = block + 0, -- in the ring
    }
    q.children[key] = child
  end
  return child
end

function Waiting.save_children(q)
  if not q.children then return end
  for key, child in pairs(q.children) do
    if child.is_listed then
      local queue = child.overflow and Overflow.spell_overflow(child.overflow) or child.queue
      local text = {child.behind, child.returned, queue, child.weight, child.turn, child.block}
      State.put(q, 'c:' .. key, concat(text, ' '))
    else
      State.unset(q, 'c:' .. key)
    end
  end
end

function Waiting.ring_base(a) return 'p' .. a.name .. '\n' end
function Waiting.overflow_base(key) return 'm' .. key .. '\n' end

-- Puts a child at the end of its parent's ring.
local function list_child(q, a, child)
  Overflow.push_record(q, a, Waiting.ring_base(a), child.name)
  child.is_listed, child.block = true, a.overflow.tail
end

-- Takes a child out of its parent's ring if nothing of it waits any more, wherever its name stands.
function Waiting.leave_ring(q, a, child)
  if child.behind > 0 or not child.is_listed then return end
  local base = Waiting.ring_base(a)
  local size = #child.name
  local found
  Overflow.look_at_records(q, a, base, child.block, 0, function(name, block, offset)
    if block == child.block and name == child.name then
      found = {block = block, from = offset - size - #spell(size), upto = offset} -- "size:name"
    end
    return not found and block == child.block
  end)
  if found then Overflow.remove_record(q, a, base, found, 0) end
  child.turn, child.is_listed = 0, false
end

-- Counts one more that waits of an account, and returns who holds it: the account, or with parents the child. One that
-- was idle has no credit for that time: it has received as much as the virtual time.
local function count_waiting(q, a, key)
  if a.behind == 0 then
    a.served = a.flight == 0 and max(a.served or q.virtual, q.virtual) or a.served or q.virtual
  end
  -- With parents the child counts it, too: turns look at the parent, and the parent's ring at the child.
  a.behind, q.behind = a.behind + 1, q.behind + 1
  if not q.rules.parents then return a end
  local child = Waiting.child_of(q, key)
  if not child.is_listed then list_child(q, a, child) end
  child.behind = child.behind + 1
  return child
end

-- A new message waits behind all others of its shard key.
function Waiting.wait_behind(q, a, key, record)
  Overflow.push_record(q, count_waiting(q, a, key), Waiting.overflow_base(key), record)
end

local function put_back(q, a, key, order, place, id, attempts, since)
  local holder = count_waiting(q, a, key)
  holder.returned = holder.returned + 1
  add(q, 'back', 0, spell_member(key, order, place, id, attempts, since))
end

-- A message that was delivered before is to be delivered again, before what is new.
function Waiting.give_back(q, a, key, place, id, attempts, since)
  put_back(q, a, key, Waiting.order_of_number(id), place, id, attempts, since or q.now)
end

-- A message came due. For the first time it is new since then, else it is given back.
function Waiting.come_due(q, a, key, place, id, attempts, since)
  -- For the first time it stands by its due time, behind messages that were written before that. Later it keeps the
  -- place of its number.
  local is_new = byte(attempts) == 48 -- '0'
  local order = is_new and Waiting.order_of_time(since) or Waiting.order_of_number(id)
  put_back(q, a, key, order, place, id, attempts, since)
end

-- A record is the message's id, then '|' and what its body has behind the shard key; or '@': its body lies by itself.
-- (A body without attributes begins with their size, '0:'.)
local function take_record(q, holder, id, mark, tail, out)
  local key = holder.name
  local since = match(id, '^%d+')
  if mark == Messages.REFERENCE then
    out[#out + 1] = new_w{
      account = holder.account, key = key, place = 'd', id = id, attempts = '0', flags = 'u', since = since, body = nil,
      attributes = nil,
    }
    return
  end
  local body = holder.body_head .. tail
  out[#out + 1] = new_w{
    account = holder.account, key = key, place = 'd', id = id, attempts = '0', flags = '', since = since, body = body,
    attributes = byte(tail) == 48 and '' or nil,
  }
  add(q, 'kept', id, body) -- what is in flight has a body of its own
end

local function take_overflow(q, a, holder, number, out)
  local base = Waiting.overflow_base(holder.name)
  holder.account, holder.body_head = a, Messages.spell_body('o', holder.name, '')
  while number > 0 and holder.behind > 0 do
    local got = Overflow.pop_records(q, holder, base, number, take_record, out)
    -- Only gaps so far (`MOST_PASSED`): the next read goes on behind them.
    if got == 0 and holder.overflow.size > 0 then
      q.more = true -- nothing was found so far, but there is more
      return
    end
    if got == 0 then
      -- The blocks are gone, which another program deleted: the count is mended, or it would be looked for again and
      -- again.
      holder.behind = holder.returned
      return
    end
    holder.behind, number = holder.behind - got, number - got
  end
end

-- Takes what was written before `ms`, one by one, at most so many.
local function take_written_before(q, a, holder, ms, number, out)
  local base = Waiting.overflow_base(holder.name)
  for _ = 1, number do
    local record = Overflow.peek_record(q, holder, base)
    if not record or match(record, '^%d+') + 0 > ms then return end
    take_overflow(q, a, holder, 1, out)
  end
end

-- Takes what was given back or came due, and what is new before that.
local function take_returned(q, a, holder, number, out)
  local key, before = holder.name, #out
  local prefix = Waiting.prefix_of(key)
  local members = call('ZRANGEBYLEX', q.keys[RETURNED], '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, number)
  local taken = {}
  for _, member in ipairs(members) do
    local order, place, id, attempts, flags, since =
      match(member, '^(%a)%d+:(%w+):([%d-]+):(%d+)(%a*):(%d+)$', #prefix + 1)
    if place ~= 'd' and not Messages.stream_key(q, place) then
      q.missed = (q.missed and q.missed .. ',' or '') .. place -- the call is sent again, with these streams declared
      break
    end
    -- A lease of this shard key may have ended that is not yet taken back: that message goes before one that is new.
    if attempts == '0' and q.is_catching_up and a.flight > 0 then break end
    -- A message that came due stands by that time among the new ones, so those that were written earlier go first.
    if order == 'd' then take_written_before(q, a, holder, since + 0, number - (#out - before), out) end
    if #out - before == number then break end
    out[#out + 1] = new_w{
      account = a, key = key, place = place, id = id, attempts = attempts, flags = flags, since = since, body = nil,
      attributes = nil,
    }
    taken[#taken + 1] = member
    holder.returned, holder.behind = holder.returned - 1, holder.behind - 1
  end
  if #taken > 0 then -- at once: a child may be asked again in this call
    Types.look_at_all(q)
    call('ZREM', q.keys[RETURNED], unpack(taken)) -- at most 1,000: a read
  end
  -- The index has nothing of it, though it was counted: the count is mended.
  if #members == 0 then holder.behind, holder.returned = holder.behind - holder.returned, 0 end
end

local function take_of_key(q, a, holder, number, out)
  local before = #out
  if holder.returned > 0 then take_returned(q, a, holder, number, out) end
  number = number - (#out - before)
  -- Messages that were given back come before new ones, also if one is left to the next read, which declares its
  -- stream.
  if number > 0 and holder.returned == 0 and not q.missed then take_overflow(q, a, holder, number, out) end
end

-- The child at the head of the ring gives as many messages as its weight says, and goes to the end of the ring if it
-- has more.
local function take_of_parent(q, a, number, out)
  local base = Waiting.ring_base(a)
  local wanted = #out + number
  for _ = 1, number + MOST_PASSED do
    if #out == wanted or a.behind == 0 then return end
    local key, offset = Overflow.peek_record(q, a, base)
    if not key then
      a.behind = 0
      return
    end
    local child = Waiting.child_of(q, key)
    local before = #out
    -- A turn goes on in the next read where this one ended: the child stays at the head until it is over.
    if child.turn == 0 then child.turn = child.weight end
    take_of_key(q, a, child, 1, out)
    if q.missed and #out == before then return end
    -- (Its weight may have become less in the middle of a turn.)
    child.turn = min(child.turn, child.weight) - 1
    if child.turn == 0 or child.behind == 0 then
      Overflow.pass_record(q, a, base, offset)
      child.turn, child.is_listed = 0, false
      -- A child with nothing is not in the ring, so no turn is spent on it.
      if child.behind > 0 then list_child(q, a, child) end
    end
    a.behind = a.behind - (#out - before)
  end
  q.more = q.more or #out < wanted
end

-- Takes what was chosen: the first blocks by one look, then each account's messages.
function Waiting.take_turns(q, picked)
  local out, fields = {}, {}
  if not q.rules.parents then
    for _, a in ipairs(picked) do
      if a.by > a.returned and Overflow.overflow_of(a).size > 0 then
        fields[#fields + 1] = Overflow.block_field(Waiting.overflow_base(a.name), a.overflow.head)
      end
    end
    Overflow.load_blocks(q, fields)
  end
  for _, a in ipairs(picked) do
    local before = a.behind
    if q.rules.parents then take_of_parent(q, a, a.by, out) else take_of_key(q, a, a, a.by, out) end
    q.behind, a.by = q.behind - (before - a.behind), nil
  end
  return out
end

-- Loads the bodies of those that lie by themselves or in a stream.
function Waiting.load_bodies(q, out)
  local fields, whose = {}, {}
  for _, w in ipairs(out) do
    if not w.body and w.place == 'd' then
      fields[#fields + 1], whose[#whose + 1] = w.id, w
    elseif not w.body then
      local entry = call('XRANGE', Messages.stream_key(q, w.place), w.id, w.id)[1]
      if entry then w.body = Messages.body_of_entry(w.place, entry[2]) end
    end
  end
  if #fields == 0 then return end
  local bodies = call('HMGET', q.keys[BODIES], unpack(fields)) -- at most 1,000: one for each message
  for at, w in ipairs(whose) do w.body = bodies[at] or nil end
end

function Waiting.save_waiting(q)
  send(q, 'not_back', 'ZREM', q.keys[RETURNED])
  send(q, 'back', 'ZADD', q.keys[RETURNED])
  Overflow.save_blocks(q)
end
