-- Unique keys. A message with one lies in the store of delayed messages, also if it is due at once; so one look tells whether it
-- still exists. Whatever ends it removes its body, and with that its key is free. The hash `dedup` has under 'u:' and the key
-- "entry id message id": the two differ if the message was replaced. The key also stands in `dedup_index`, by the time when somebody
-- looks whether it is to be forgotten.
--- @use producers
local FIRST_LOOK = 60000

-- Returns the id of the message that has a unique key, and the id of its entry; nil if the key is free.
local function find_unique(q, key)
  local entry_id, message_id = string.match(redis.call('HGET', q.dedup, 'u:' .. key) or '', '^(%S+) (%S+)$')
  if entry_id and #redis.call('XRANGE', q.bodies, entry_id, entry_id) > 0 then return message_id, entry_id end
end

-- Gives a message a unique key.
local function save_unique(q, key, entry_id, message_id)
  redis.call('HSET', q.dedup, 'u:' .. key, entry_id .. ' ' .. message_id)
  redis.call('ZADD', q.dedup_index, string.format('%.0f', q.now + FIRST_LOOK), 'u:' .. key)
end

-- Notes which messages of a call cannot be written since another one has their key, or an earlier one of the call has it. With 'e'
-- they are repetitions of that one. Returns those that are not, as "number:message id" with '' for the earlier one's id.
local function find_conflicts(q, options, repeated, count)
  local conflicts, first = {}, {}
  for i = 1, count do
    local option = options[i]
    local key = option and option.unique_key ~= '' and not repeated[i] and option.unique_key
    local holder = key and find_unique(q, key)
    if holder and holder == option.takes_from then holder = nil end
    if key and (holder or first[key]) then
      if option.mode == 'e' then
        repeated[i], option.holder, option.same_as = true, holder, first[key]
      else
        conflicts[#conflicts + 1] = i .. ':' .. (holder or '')
      end
    elseif key then
      first[key] = i
    end
  end
  return conflicts
end

-- Finds which messages of a call are not to be written. Returns those that an earlier one stands for, by their index, and how many
-- they are; and those that cannot be written (see `find_conflicts`).
local function find_earlier(q, options, count)
  local repeated, known = find_repeated(q, options), 0
  local conflicts = find_conflicts(q, options, repeated, count)
  for _ in pairs(repeated) do known = known + 1 end
  return repeated, known, conflicts
end

-- Returns the id of the earlier message that stands for one of a call, nil if there is none. `ids` has those of this call that were
-- written with a unique key, by their index.
local function find_standing(q, option, ids)
  local id = option.dedup_key ~= '' and find_duplicate(q, option.dedup_key)
  if id then return id end
  id = option.holder or ids[option.same_as]
  if id and option.dedup_key ~= '' then save_dedup_key(q, option.dedup_key, id) end
  return id
end
