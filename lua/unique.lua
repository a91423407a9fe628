-- Unique keys. A message with one always waits (it never goes into a stream), and its body lies by itself: so it is
-- replaced in its place. `dedup` has 'u:' and the key as "id state message-id": the state is 'w' while it waits, 'f' in
-- flight, 'p' parked on its way to the dead letters. The key stands in `dedup_index`, too, by the time when somebody
-- looks whether it can be forgotten.
Unique.FIRST_LOOK = 60000 -- ms

-- Says whether a message can still be delivered, so that it may stand for another: it exists, and its deadline is not
-- over.
local function lives(q, id)
  local body = call('HGET', q.keys[BODIES], id)
  if not body then return false end
  local _, _, attributes = Messages.head_of_body(body)
  local ends = Messages.deadline_in(attributes)
  return not (ends and ends <= q.now)
end

-- Returns the message id, the entry's id and the state of the message that has a unique key; nil if the key is free.
function Unique.find_unique(q, key)
  local id, state, full_id = match(call('HGET', q.keys[DEDUP], 'u:' .. key) or '', '^(%S+) (%a) (.*)$')
  if id and state ~= 'p' and lives(q, id) then return full_id, id, state end
end

local function spell_unique(id, state, full_id) return id .. ' ' .. state .. ' ' .. full_id end

function Unique.save_unique(q, key, id, state, full_id)
  call('HSET', q.keys[DEDUP], 'u:' .. key, spell_unique(id, state, full_id))
end

-- Notes in which state a message with a unique key is, unless the key is another's by now.
function Unique.note_unique(q, body, id, state)
  if body == '' then return end
  local _, _, _, key = Messages.head_of_body(body)
  if key == '' then return end
  local known, _, full_id = match(call('HGET', q.keys[DEDUP], 'u:' .. key) or '', '^(%S+) (%a) (.*)$')
  if known == id then add(q, 'noted', 'u:' .. key, spell_unique(id, state, full_id)) end
end

-- Writes down what was noted. What is freed goes last: a read notes that a message waits again when its lease has
-- ended, and may bury it then.
function Unique.save_noted(q)
  send(q, 'noted', 'HSET', q.keys[DEDUP])
  send(q, 'freed', 'HDEL', q.keys[DEDUP])
  send(q, 'not_looked_at', 'ZREM', q.keys[DEDUP_INDEX])
end

-- Returns which of these fields of `dedup` may be forgotten: not the unique keys of messages that exist. At those
-- somebody looks again when they are twice as old.
local function keep_unique(q, fields)
  local ended = {}
  for _, field in ipairs(fields) do
    local id = sub(field, 1, 2) == 'u:' and match(call('HGET', q.keys[DEDUP], field) or '', '^%S+')
    if id and call('HEXISTS', q.keys[BODIES], id) == 1 then
      local age = q.now - match(id, '^%d+')
      call('ZADD', q.keys[DEDUP_INDEX], spell(q.now + max(Unique.FIRST_LOOK, age)), field)
    else
      ended[#ended + 1] = field
    end
  end
  return ended
end

function Unique.forget_keys(q, most)
  Producers.forget_ended(q, q.keys[DEDUP_INDEX], q.keys[DEDUP], most, keep_unique)
end

-- Frees the unique key of a message that has ended, unless the key is another's by now.
function Unique.release_key(q, body, id)
  local _, _, _, key = Messages.head_of_body(body)
  if key == '' or match(call('HGET', q.keys[DEDUP], 'u:' .. key) or '', '^%S+') ~= id then return end
  add(q, 'freed', 'u:' .. key)
  add(q, 'not_looked_at', 'u:' .. key)
end

function Unique.find_duplicate(q, key)
  local ends, id = match(call('HGET', q.keys[DEDUP], key) or '', '^(%d+)|(.*)$')
  if ends and ends + 0 > q.now then return id end
end

function Unique.save_dedup_key(q, key, id, window)
  local ends = spell(q.now + window)
  call('HSET', q.keys[DEDUP], key, ends .. '|' .. id)
  call('ZADD', q.keys[DEDUP_INDEX], ends, key)
end
