-- The waiting messages of a shard key are one queue: first those given back, by number; then the new ones, in its
-- overflow by number, and between these those that came due for the first time, by when that was. `returned` is a
-- sorted set without scores, with members "size:key:<order>:place:id:attempts:since", so those of a shard key are
-- together. The order is <letter for the size of the number><number> of what was given back, 'd' and 14 digits of ms of
-- what came due. The place is where the body lies: 'd' in `bodies`, else the number of a stream. The attempts are the
-- deliveries so far, and flags: 'e' an error is stored, 'l' the last lease ended, 'u' it has a unique key, 'r' it was
-- rejected and waits for room among the dead letters. With parents all this is a child's (children.lua).

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

function Waiting.overflow_base(key) return 'm' .. key .. '\n' end

-- Counts one more that waits of an account, and returns who holds it: the account, or with parents the child. One that
-- was idle has no credit for that time: it has received as much as the virtual time.
local function count_waiting(q, a, key)
  if a.behind == 0 then
    a.served = a.flight == 0 and max(a.served or q.virtual, q.virtual) or a.served or q.virtual
  end
  -- With parents the child counts it, too: turns look at the parent, and the parent's turns at the child.
  a.behind, q.behind = a.behind + 1, q.behind + 1
  if not q.rules.parents then return a end
  local child = Children.child_of(q, key)
  if child.behind == 0 then Children.begin_waiting(a, child) end
  child.behind = child.behind + 1
  return child
end

-- A new message waits behind all others of its shard key.
function Waiting.wait_behind(q, a, key, head, payload)
  Overflow.push_record(q, count_waiting(q, a, key), Waiting.overflow_base(key), head, payload)
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

-- A record is the message's id, then '|' and what its body has behind the shard key, or '=' and that without the
-- payload, which lies by itself; or '@': its body lies by itself. (A body without attributes begins with their size,
-- '0:'.)
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
  local body = (mark == '|' and holder.body_head or Messages.spell_head('o', mark, key)) .. tail
  out[#out + 1] = new_w{
    account = holder.account, key = key, place = 'd', id = id, attempts = '0', flags = '', since = since, body = body,
    attributes = byte(tail) == 48 and '' or nil,
  }
  add(q, 'kept', id, body) -- what is in flight has a body of its own
end

local function take_overflow(q, a, holder, number, out)
  local base = Waiting.overflow_base(holder.name)
  holder.account, holder.body_head = a, Messages.spell_head('o', '|', holder.name)
  while number > 0 and holder.behind > 0 do
    local got = Overflow.pop_records(q, holder, base, number, take_record, out)
    -- Only gaps so far (`MOST_PASSED`): the next read continues behind them.
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

-- Takes messages written before `ms`, one by one, up to a number.
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

-- Takes messages of the children whose turn it is.
local function take_of_parent(q, a, number, out)
  local wanted = #out + number
  for _, child in ipairs(Children.choose(q, a, number)) do
    local behind = child.behind
    if not q.missed then take_of_key(q, a, child, child.by, out) end
    a.behind, child.by = a.behind - (behind - child.behind), nil
  end
  q.more = q.more or #out < wanted
end

-- Takes what was chosen: the first blocks by one look, then each account's messages.
function Waiting.take_turns(q, picked)
  local out = {nil}
  local fields = {nil}
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

-- Loads the payloads that lie by themselves. A message whose payload is gone counts as vanished.
local function load_payloads(q, out)
  local fields, whose
  for _, w in ipairs(out) do
    if w.body and not w.payload and Messages.is_apart(w.body) then
      if not fields then fields, whose = {}, {} end
      fields[#fields + 1], whose[#whose + 1] = Messages.field_of_payload(w.id), w
    end
  end
  if not fields then return end
  local payloads = call('HMGET', q.keys[BODIES], unpack(fields)) -- at most 1,000: one for each message
  for at, w in ipairs(whose) do
    w.payload = payloads[at] or nil
    if not w.payload then
      w.body = nil
      Messages.drop_body(q, 'd', w.id)
    end
  end
end

-- Loads the bodies of those that lie by themselves or in a stream.
local function load_bodies(q, out)
  local fields, whose
  for _, w in ipairs(out) do
    if not w.body and w.place == 'd' then
      if not fields then fields, whose = {}, {} end
      fields[#fields + 1], whose[#whose + 1] = w.id, w
    elseif not w.body then
      local entry = call('XRANGE', Messages.stream_key(q, w.place), w.id, w.id)[1]
      if entry then w.body, w.payload = Messages.body_of_entry(w.place, entry[2]) end
    end
  end
  if not fields then return end
  local bodies = call('HMGET', q.keys[BODIES], unpack(fields)) -- at most 1,000: one for each message
  for at, w in ipairs(whose) do w.body = bodies[at] or nil end
end

-- Loads what is not known yet of messages that are to be delivered.
function Waiting.load(q, out)
  load_bodies(q, out)
  load_payloads(q, out)
end

function Waiting.save_waiting(q)
  send(q, 'not_back', 'ZREM', RETURNED)
  send(q, 'back', 'ZADD', RETURNED)
  Overflow.save_blocks(q)
end
