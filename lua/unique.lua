-- Unique keys. A message with one always waits (it never goes into a stream), and its body lies by itself: so it is
-- replaced in its place. `dedup` has 'u:' and the key as "id state message-id|tenant": the state is 'w' while it waits,
-- 'f' in flight, 'p' past its last delivery, on its way to the dead letters. The key stands in `dedup_index`, too, by
-- the time when somebody looks whether it can be forgotten. A dedup key is there as "end|message-id|tenant". Both count
-- in the share of `max_dedup` that the tenant uses. (A gateway's ids do not: see ids.lua.) While a message is in
-- flight, 'l:' and its unique key is the token of its lease: so who writes finds out whether its last delivery is over,
-- and need not list leases. (Any delivery may be the last: `max_deliveries` can be lowered meanwhile.)
Unique.FIRST_CHECK = 60000 -- ms

-- Says whether a message can still be delivered, so that it may stand for another: it exists, and its deadline is not
-- over.
local function lives(q, id)
  local body = call('HGET', q.keys[BODIES], id)
  if not body then return false end
  local _, _, attributes = Messages.head_of_body(body)
  local ends = Messages.deadline_in(attributes)
  return not (ends and ends <= q.now)
end

-- Says whether the last delivery of a message is over, though no read has taken it back yet.
local function is_past_last(q, key, id)
  local token = q.rules.deliveries > 0 and call('HGET', q.keys[DEDUP], 'l:' .. key)
  -- (The token may be that of a message that had the key before.)
  local its_id, attempt = match(token or '', '^%w+:([%d-]+):(%d+):')
  if its_id ~= id or not Ended.is_last(q, attempt) then return false end
  local ends = call('ZSCORE', q.keys[LEASES], token)
  Ended.till(q) -- it notes the last jump of the clock
  return ends and not Clock.is_live(q, ends)
end

-- Returns the id of the message that has a unique key, nil if the key is free; and what is known of the key.
function Unique.find_unique(q, key)
  local known = call('HGET', q.keys[DEDUP], 'u:' .. key)
  local id, state, full_id = match(known or '', '^(%S+) (%a) ([^|]*)')
  -- On its way to the dead letters it will not be worked on any more, so it keeps nobody from writing.
  local is_over = state == 'p' or state == 'f' and is_past_last(q, key, id)
  if id and not is_over and lives(q, id) then return full_id, known end
  return nil, known
end

local function spell_unique(id, state, rest) return id .. ' ' .. state .. ' ' .. rest end

-- The owner of a key, as its text says. (A version before this one did not write it down, and counted nothing.)
local function owner_in(text) return match(text or '', '^[^|]*|(.*)$') end

local function owner_of_dedup_key(text) return owner_in(match(text or '', '^%d+|(.*)$')) end

-- Counts a key in the share of its owner from now on; `before` had it so far, if anybody had.
local function count_key(q, before, owner)
  if before == owner then return end
  -- It was another tenant's before: the key had ended, or is taken from it.
  if before then Shares.count(q, 'D:', before, -1) end
  Shares.count(q, 'D:', owner, 1)
end

-- Gives a unique key to a message. `known` is what was known of the key.
function Unique.save_unique(q, key, id, state, full_id, owner, known)
  count_key(q, owner_in(known), owner)
  call('HSET', q.keys[DEDUP], 'u:' .. key, spell_unique(id, state, full_id .. '|' .. owner))
end

-- Notes in which state a message with a unique key is, unless the key is another's by now; and the token of its lease,
-- nil for none.
function Unique.note_unique(q, body, id, state, token)
  if body == '' then return end
  local _, _, _, key = Messages.head_of_body(body)
  if key == '' then return end
  local known, _, rest = match(call('HGET', q.keys[DEDUP], 'u:' .. key) or '', '^(%S+) (%a) (.*)$')
  -- Another message may have the key by now: `takes_from`, or since this one was as good as dead.
  if known ~= id then return end
  add(q, 'noted', 'u:' .. key, spell_unique(id, state, rest))
  if token then add(q, 'noted', 'l:' .. key, token) end
end

-- Writes down what was noted. Freed keys go last: a read notes that a message waits again when its lease has ended, and
-- may bury it then.
function Unique.save_noted(q)
  send(q, 'noted', 'HSET', DEDUP)
  send(q, 'freed', 'HDEL', DEDUP)
  send(q, 'not_looked_at', 'ZREM', DEDUP_INDEX)
end

-- Returns which of these fields of `dedup` may be forgotten: not the unique keys of messages that exist. Those are
-- checked again when they are twice as old. The forgotten ones leave their tenant's share; ids are forgotten here.
local function keep_unique(q, fields)
  local texts = call('HMGET', q.keys[DEDUP], unpack(fields)) -- at most 1,004: a write
  local ended, owners, ids, their_texts = {}, {}, {}, {}
  for at, field in ipairs(fields) do
    local text = texts[at] or ''
    local id = sub(field, 1, 2) == 'u:' and match(text, '^%S+')
    if Ids.is_id(field) then
      ids[#ids + 1], their_texts[#their_texts + 1] = field, text
    elseif id and call('HEXISTS', q.keys[BODIES], id) == 1 then
      -- Twice as old at each look, so a message that waits for long is looked at a few times in all.
      local age = q.now - match(id, '^%d+')
      call('ZADD', q.keys[DEDUP_INDEX], spell(q.now + max(Unique.FIRST_CHECK, age)), field)
    else
      ended[#ended + 1] = field
      if id then ended[#ended + 1] = 'l' .. sub(field, 2) end -- in the hash alone
      if id then owners[#owners + 1] = owner_in(text) else owners[#owners + 1] = owner_of_dedup_key(text) end
    end
  end
  Ids.forget(q, ids, their_texts)
  Shares.load(q, 'D:', owners)
  for _, owner in ipairs(owners) do Shares.count(q, 'D:', owner, -1) end
  return ended
end

function Unique.forget_keys(q, most)
  Producers.forget_ended(q, q.keys[DEDUP_INDEX], q.keys[DEDUP], most, keep_unique)
end

-- Frees the unique key of a message that has ended, unless the key is another's by now.
function Unique.release_key(q, body, id)
  local _, _, _, key = Messages.head_of_body(body)
  local known = key ~= '' and call('HGET', q.keys[DEDUP], 'u:' .. key)
  if not known or match(known, '^%S+') ~= id then return end
  local owner = owner_in(known)
  if owner then Shares.count(q, 'D:', owner, -1) end
  add(q, 'freed', 'u:' .. key, 'l:' .. key)
  add(q, 'not_looked_at', 'u:' .. key)
end

-- Returns the id of the message that a dedup key stands for, nil if for none; and what is known of the key.
function Unique.find_duplicate(q, key)
  local known = call('HGET', q.keys[DEDUP], key)
  local ends, id = match(known or '', '^(%d+)|([^|]*)')
  if ends and ends + 0 > q.now then return id, known end
  return nil, known
end

-- Lets a dedup key stand for a message. `known` is what was known of the key.
function Unique.save_dedup_key(q, key, id, window, owner, known)
  local ends = spell(q.now + window)
  count_key(q, owner_of_dedup_key(known), owner)
  call('HSET', q.keys[DEDUP], key, ends .. '|' .. id .. '|' .. owner)
  call('ZADD', q.keys[DEDUP_INDEX], ends, key)
end
