-- Dead letters: messages that are not delivered again unless they are redriven. An entry of the stream `dead` has four pairs of
-- fields ahead of those of the message: its id under 'i', the reason under 'r', its deliveries under 'c', the last error
-- under 'e'. The hash `moved` has where a message with this id lies: 'x:' and the entry id. Letters of an earlier version have no
-- such field.
--- @use accounts, attempts, journal, messages, schedule

-- What others wrote may have any number of fields. Lua hands no more than 8,000 values to a command, so an entry with more
-- fields than these stays where it is: it can be delivered and acked, but not be moved.
local MOST_FIELDS = 7000

-- Where there are more than `max_dead`, since that was lowered, so many are deleted for each one that comes.
local MOST_DROPPED = 8

-- A message for which there is no room is tried again after so many ms.
local RETRY_AFTER = 5000

-- Reads how often a message is delivered, and how many dead letters there may be. What the caller knows counts only where the
-- queue says nothing, since it may be old.
local function read_limits(q, known_deliveries, known_dead)
  local max_deliveries, max_dead, drop_dead = unpack( -- at most 3: the fields
    redis.call('HMGET', q.meta, 'max_deliveries', 'max_dead', 'drop_dead'))
  q.max_deliveries, q.max_dead = tonumber(max_deliveries or known_deliveries), tonumber(max_dead or known_dead)
  q.drops_dead = drop_dead == '1'
end

-- Deletes a dead letter for good. Returns whether there was one.
local function delete_letter(q, entry_id)
  local entry = redis.call('XRANGE', q.dead, entry_id, entry_id)[1]
  if not entry then return false end
  local letter = entry[2]
  redis.call('XDEL', q.dead, entry_id)
  if letter[1] == 'i' and redis.call('HGET', q.moved, letter[2]) == 'x:' .. entry_id then redis.call('HDEL', q.moved, letter[2]) end
  if q.events then note_event(q, 'e', letter[2] or '', letter[10] or '', letter[6] or 0) end
  return true
end

-- Makes room for one more dead letter by deleting the oldest ones. Returns whether there is room.
local function make_room(q)
  local too_many = redis.call('XLEN', q.dead) - q.max_dead + 1
  if too_many <= 0 then return true end
  if not q.drops_dead then return false end
  for _, entry in ipairs(redis.call('XRANGE', q.dead, '-', '+', 'COUNT', math.min(too_many, MOST_DROPPED))) do
    delete_letter(q, entry[1])
    redis.call('HINCRBY', q.meta, 'dead_dropped', 1)
  end
  return redis.call('XLEN', q.dead) < q.max_dead
end

-- Delays a message for which there is no room. What is known of it stays: where it may go, and whether it was rejected. What else
-- the call has noted of due times waits for its end, since the leases that it grants are written then.
local function postpone_dead_letter(q, item, fields)
  local due, shard_key = q.now + RETRY_AFTER, q.is_fair and fields[1] == 'K' and fields[2]
  local shard = item.is_rejected and REJECTED .. item.shard or item.shard
  redis.call('HSET', q.attempts, item.handle, spell_attempts(item.deliveries, shard, item.last_error, q.now))
  redis.call('ZADD', q.delayed, score_at(q, 'd', shard_key, due), item.handle)
  if shard_key then
    redis.call('ZADD', q.due, 'LT', string.format('%.0f', due), 'd' .. find_bucket(q, shard_key))
    redis.call('HSET', q.shard_keys, item.handle, shard_key)
    count_delayed(q, shard_key, 1)
  end
  if q.events then note_message(q, 'p', item.place, item.id, fields, item.deliveries, due) end
end

-- Returns the entry that a message becomes. One that was redriven keeps its original id. The deliveries before a redrive count as
-- well; who else writes attributes may write any number of them. A message that others wrote gets the fields it lacks.
local function spell_dead_letter(item, fields)
  local is_foreign = item.place == 'l' or (fields[1] ~= 'k' and fields[1] ~= 'K') or #fields < 4
  local attributes = is_foreign and '' or attributes_of(fields)
  local origin = string.match(attributes, ' i(%S+)')
  local deliveries = item.deliveries + math.min(tonumber(string.match(attributes, ' c(%d+)')) or 0, 1000000000)
  local reason = item.is_rejected and item.last_error or 'max deliveries'
  local entry = {'i', origin or item.id .. '-' .. item.place, 'r', reason, 'c', deliveries, 'e', item.last_error}
  if is_foreign then
    for _, value in ipairs({'k', '', 'l', '', 'm', ''}) do entry[#entry + 1] = value end
  end
  for _, value in ipairs(fields) do entry[#entry + 1] = value end
  return entry
end

-- Moves a message to the dead letters. `key` is the stream where its body lies, `kind` is the letter of the journal's event.
-- Returns the message's id; nil if there was no room, or the message has too many fields: then it waits as a delayed one and is
-- tried again.
local function move_to_dead(q, item, key, fields, kind)
  if #fields > MOST_FIELDS or not make_room(q) then
    postpone_dead_letter(q, item, fields)
    return nil
  end
  local entry = spell_dead_letter(item, fields)
  local entry_id = redis.call('XADD', q.dead, '*', unpack(entry)) -- at most 7,014: MOST_FIELDS and what is added
  redis.call('XDEL', key, item.id)
  redis.call('HDEL', q.attempts, item.handle)
  redis.call('HSET', q.moved, entry[2], 'x:' .. entry_id)
  redis.call('HINCRBY', q.meta, 'gone', 1)
  redis.call('HINCRBY', q.meta, 'dead_lettered', 1)
  if q.events then note_message(q, kind, item.place, item.id, fields, item.deliveries) end
  return entry[2]
end

-- Ends a message whose holder gave it back for the last time: it goes to the dead letters. Returns the letter of a reply: d(ead),
-- with the message's id, o(k) if it waits for room, l(ost) if its body is gone, so that nothing is left to move.
local function end_message(q, item, key)
  local body = redis.call('XRANGE', key, item.id, item.id)[1]
  if body then
    local message_id = move_to_dead(q, item, key, body[2], item.is_rejected and 'r' or 'b')
    return message_id and 'd' or 'o', message_id
  end
  redis.call('HINCRBY', q.meta, 'gone', 1)
  redis.call('HINCRBY', q.meta, 'vanished', 1)
  if q.events then note_event(q, 'z', item.id .. '-' .. item.place, '', 0) end
  return 'l'
end

-- Returns what a dead letter becomes again as an entry of the stream of bodies. Its deadline and its due time are over; the id
-- that its writer was given and the deliveries so far stay as attributes.
local function spell_restored(letter)
  local fields = {letter[9], letter[10], letter[11], letter[12], 'm', ' i' .. letter[2] .. ' c' .. letter[6]}
  for at = letter[13] == 'm' and 15 or 13, #letter do fields[#fields + 1] = letter[at] end
  return fields
end

-- Makes a message of the dead letter with this entry id, under an id of its own. Returns the message as one that is given back;
-- nil if there is no such entry any more, or it is no dead letter.
local function restore_message(q, entry_id, shard, ms, number)
  local entry = redis.call('XRANGE', q.dead, entry_id, entry_id)[1]
  local letter = entry and entry[2] or {}
  if letter[1] ~= 'i' or #letter < 12 or #letter > MOST_FIELDS then return nil end
  local message_id, deliveries, last_error, fields = letter[2], letter[6], letter[8], spell_restored(letter)
  local id = string.format('%.0f-%.0f', ms, number)
  redis.call('XADD', q.bodies, id, unpack(fields)) -- at most 7,000: MOST_FIELDS
  redis.call('XDEL', q.dead, entry_id)
  redis.call('HSET', q.moved, message_id, 'd:' .. id) -- instead of where the letter lay
  if q.events then note_event(q, 'v', message_id, fields[2], deliveries) end
  return {
    handle = 'd:' .. id, place = 'd', ms = ms, number = number, deliveries = 0, shard = shard, last_error = last_error,
    shard_key = q.is_fair and fields[1] == 'K' and fields[2], since = q.now,
  }
end
