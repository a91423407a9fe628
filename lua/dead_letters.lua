-- Dead letters: messages that are not delivered again unless they are redriven. An entry of the stream `dead` has four
-- pairs of fields ahead of those of the message: its id under 'i', the reason under 'r', its deliveries under 'c', the
-- last error under 'e'. The hash `moved` has under a message's id 'x:' and the entry's id.
local OWN_FIELDS = 14 -- names and values that a letter has beside those of what another program wrote
local MOST_FIELDS = 7000 -- names and values of a letter
local MOST_DROPPED = 8 -- letters deleted for one that comes, where `max_dead` was lowered
DeadLetters.RETRY_AFTER = 5000 -- ms after which a message is tried again for which there was no room

-- `errors` has under the entry's id "due|class|text" of a message that was given back with an error or a delay.
function DeadLetters.error_of(q, id, flags)
  if find(flags, 'l', 1, true) then return 'lease ended' end
  if not find(flags, 'e', 1, true) then return '' end
  return match(call('HGET', q.keys[ERRORS], id) or '', '^%d*|[^|]*|(.*)$') or ''
end

-- What is known of a message that was delivered or delayed before: "deliveries@since|'-' if it is parked|last error".
function DeadLetters.spell_known(q, id, attempts, flags, since)
  local parked = find(flags, 'r', 1, true) and '-' or ''
  return attempts .. '@' .. spell(since) .. '|' .. parked .. '|' .. DeadLetters.error_of(q, id, flags)
end

-- Deletes a dead letter for good. Returns whether there was one.
function DeadLetters.delete_letter(q, entry_id)
  local entry = call('XRANGE', q.keys[DEAD], entry_id, entry_id)[1]
  if not entry then return false end
  local letter = entry[2]
  call('XDEL', q.keys[DEAD], entry_id)
  if letter[1] == 'i' and call('HGET', q.keys[MOVED], letter[2]) == 'x:' .. entry_id then
    call('HDEL', q.keys[MOVED], letter[2])
  end
  Journal.note_event(q, 'e', letter[2] or '', letter[10] or '', letter[6] or 0)
  return true
end

-- Says whether a message can become a letter: what another program wrote may have more fields than one command takes.
function DeadLetters.can_be_letter(body)
  local _, _, _, _, at = Messages.head_of_body(body)
  if byte(body, at) ~= 108 then return true end -- 108 is 'l'
  return #Messages.foreign_fields(Messages.parse_body(body).payload) + OWN_FIELDS <= MOST_FIELDS
end

-- Makes room for one more by deleting the oldest ones, where the queue says so. Returns whether there is room.
function DeadLetters.has_room_for_dead(q)
  local too_many = call('XLEN', q.keys[DEAD]) - q.rules.max_dead + 1
  if too_many <= 0 then return true end
  if not q.rules.drops_dead then return false end
  for _, entry in ipairs(call('XRANGE', q.keys[DEAD], '-', '+', 'COUNT', min(too_many, MOST_DROPPED))) do
    DeadLetters.delete_letter(q, entry[1])
    State.count_up(q, 'dead_dropped', 1)
  end
  return call('XLEN', q.keys[DEAD]) < q.rules.max_dead
end

-- Returns the fields of a letter. What another program wrote comes under the tag 'l'.
local function spell_letter(id, reason, deliveries, last_error, b)
  local letter = {
    'i', Messages.message_id(id, b.origin, b.key), 'r', reason, 'c', deliveries, 'e', last_error,
    'k', b.key, b.tag, b.payload,
  }
  if b.tag == 'l' then
    letter[12], letter[13], letter[14] = '', 'm', b.attributes
    for _, value in ipairs(Messages.foreign_fields(b.payload)) do letter[#letter + 1] = value end
    return letter
  end
  if b.attributes ~= '' then letter[13], letter[14] = 'm', b.attributes end
  if b.headers ~= '' then letter[#letter + 1], letter[#letter + 2] = 'h', b.headers end
  return letter
end

-- Moves a message, whose body is gone from where it lay, to the dead letters. Returns its id.
function DeadLetters.bury(q, id, reason, attempts, last_error, body, kind)
  local b = Messages.parse_body(body)
  local deliveries = attempts + Messages.deliveries_before(b.attributes)
  local letter = spell_letter(id, reason, deliveries, last_error, b)
  local entry_id = call('XADD', q.keys[DEAD], '*', unpack(letter)) -- at most 7,000: the fields of an entry
  call('HSET', q.keys[MOVED], letter[2], 'x:' .. entry_id)
  State.count_up(q, 'dead_lettered', 1)
  Journal.note_event(q, kind, letter[2], b.key, deliveries)
  return letter[2]
end

-- A message for which there is no room waits as a delayed one until `at`, marked as rejected if it was.
function DeadLetters.park(q, a, key, id, attempts, flags, body, at)
  Due.put_off(q, a, key, at, 'd', id, attempts .. flags)
  if not q.events then return end
  local origin, owner, attributes = Messages.head_of_body(body)
  local deliveries = attempts + Messages.deliveries_before(attributes)
  Journal.note_event(q, 'p', Messages.message_id(id, origin, owner), key, deliveries, at)
end
