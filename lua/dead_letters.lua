-- Dead letters: messages that are not delivered again unless they are redriven. An entry of the stream `dead` has four
-- pairs of fields ahead of those of the message: its id under 'i', the reason under 'r', its deliveries under 'c', the
-- last error under 'e'. The hash `moved` has under a message's id 'x:', the entry's id and '|' with the letter's number
-- among those of its tenant, and under 'n', that number, ':' and the tenant the message's id. So a tenant's oldest
-- letter is found, however many others have. A 'p' behind the number says that the tenant is the parent: it is known
-- whose a letter is, also when the queue has parents, or has none, only since then. Its share is "count first last": no
-- number is lower than `first`.
-- (Letters of a version before this one have no number, and are in nobody's share.)
local OWN_FIELDS = 14 -- names and values that a letter has besides those of what another program wrote
local MOST_FIELDS = 7000 -- names and values of a letter
local MOST_DROPPED = 8 -- letters deleted for one that comes, where `max_dead` was lowered
local MOST_PASSED = 512 -- numbers of letters that are gone, in one call
DeadLetters.RETRY_AFTER = 5000 -- ms after which a message is tried again for which there was no room

-- `errors` has under the entry's id "due|kind|text" of a message that was given back with an error or a delay. The kind
-- is the class of the error, and how the try failed (`Failures.spell_kind`): '' where none was named. Returns the text
-- and the kind.
function DeadLetters.error_of(q, id, flags)
  if find(flags, '[lL]') then return 'lease ended', ' lease-ended' end
  if not find(flags, 'e', 1, true) then return '', '' end
  local kind, text = match(call('HGET', q.keys[ERRORS], id) or '', '^%d*|([^|]*)|(.*)$')
  return text or '', kind or ''
end

-- The record of a message that was delivered or delayed before, as "deliveries@since|rejected|kind|last error":
-- rejected is '-' if it was, so that it waits for room, or ''.
function DeadLetters.spell_known(q, id, attempts, flags, since)
  local rejected = find(flags, 'r', 1, true) and '-' or ''
  local text, kind = DeadLetters.error_of(q, id, flags)
  return attempts .. '@' .. spell(since) .. '|' .. rejected .. '|' .. kind .. '|' .. text
end

-- Looks up the shares of these tenants by one look, for a call that may make many letters.
function DeadLetters.load_shares(q, owners) Shares.load(q, 'X:', owners) end

-- Returns a tenant's share: how many letters, and the numbers of its first and last. A caller that changes it saves it.
local function share_of(q, owner)
  local shares = q.dead_shares
  if not shares then
    shares = {}
    q.dead_shares = shares
  end
  local share = shares[owner]
  if not share then
    local count, first, last = match(Shares.text_of(q, 'X:', owner) or '0 1 0', '^(%d+) (%d+) (%d+)$')
    share = {count = count + 0, first = first + 0, last = last + 0}
    shares[owner] = share
  end
  return share
end

local function save_share(q, owner, share)
  -- A tenant without letters keeps no share: its numbers begin with 1 again.
  if share.count == 0 then
    q.dead_shares[owner] = nil
    return Shares.put(q, 'X:', owner, false)
  end
  Shares.put(q, 'X:', owner, concat({share.count, spell(share.first), spell(share.last)}, ' '))
end

-- Writes down where the letters of a call are.
function DeadLetters.save_places(q) send(q, 'moved', 'HSET', MOVED) end

function DeadLetters.number_field(number, owner) return 'n' .. spell(number) .. ':' .. owner end

-- Returns the entry where the letter of a message lies, its number, and 'p' if it is a parent's; nil if there is none.
function DeadLetters.entry_of(key, message_id)
  return match(call('HGET', key, message_id) or '', '^x:([^|]*)|?(%d*)(p?)$')
end

-- A message does not have a letter any more.
function DeadLetters.forget_letter(q, message_id, shard_key, number, kind)
  local moved = q.keys[MOVED]
  if number == '' then return call('HDEL', moved, message_id) end
  local owner = kind == 'p' and Rules.parent_of(shard_key) or shard_key
  call('HDEL', moved, message_id, DeadLetters.number_field(number, owner))
  local share = share_of(q, owner)
  share.count = share.count - 1
  if share.first == number + 0 then share.first = share.first + 1 end
  save_share(q, owner, share)
end

-- Returns the group of a letter among the failures: the last of its attributes. '' if it has none, as those of versions
-- before this one.
function DeadLetters.group_of(letter)
  return letter[13] == 'm' and match(letter[14] or '', ' f([^ |]*|[^ |]*|[^ |]*)$') or ''
end

-- A letter is there no more.
function DeadLetters.leave_group(q, entry_id, letter)
  local group = DeadLetters.group_of(letter)
  if group ~= '' then Failures.note_gone(q, group, entry_id) end
end

-- Deletes a dead letter for good. Returns whether there was one.
function DeadLetters.delete_letter(q, entry_id)
  local entry = call('XRANGE', q.keys[DEAD], entry_id, entry_id)[1]
  if not entry then return false end
  local letter = entry[2]
  call('XDEL', q.keys[DEAD], entry_id)
  if q.letters then q.letters = q.letters - 1 end
  if letter[1] == 'i' then
    local known, number, kind = DeadLetters.entry_of(q.keys[MOVED], letter[2])
    if known == entry_id then DeadLetters.forget_letter(q, letter[2], letter[10] or '', number, kind) end
    DeadLetters.leave_group(q, entry_id, letter)
  end
  Journal.note_event(q, 'e', letter[2] or '', letter[10] or '', letter[6] or 0)
  return true
end

-- Says whether a message can become a letter: one from another program may have more fields than one command takes.
function DeadLetters.can_be_letter(body)
  local _, _, _, _, at = Messages.head_of_body(body)
  if byte(body, at) ~= 108 then return true end -- 108 is 'l'
  local b = Messages.parse_body(body)
  return #Messages.foreign_fields(b.payload) + OWN_FIELDS <= MOST_FIELDS
end

-- Deletes the oldest letter of a tenant. Returns whether it did; not if more numbers before it are gone than one call
-- passes.
local function drop_oldest(q, owner)
  DeadLetters.save_places(q) -- it may be one of this call
  local share = share_of(q, owner)
  local moved = q.keys[MOVED]
  local upto = min(share.last, share.first + MOST_PASSED - 1)
  while share.count > 0 and share.first <= upto do
    local message_id = call('HGET', moved, DeadLetters.number_field(share.first, owner))
    local entry_id = message_id and DeadLetters.entry_of(moved, message_id)
    if entry_id and DeadLetters.delete_letter(q, entry_id) then return true end
    if message_id then -- its letter is gone: something else deleted it
      call('HDEL', moved, message_id, DeadLetters.number_field(share.first, owner))
      share.count = share.count - 1
    end
    -- Behind numbers that are gone the next search begins, so each is passed over once.
    share.first = share.first + 1
    save_share(q, owner, share)
  end
  return false
end

-- Makes room for one more letter of a tenant, where the queue says so, by deleting the oldest ones of this tenant.
-- Returns whether there is room.
function DeadLetters.has_room_for_dead(q, owner)
  q.letters = q.letters or call('XLEN', q.keys[DEAD])
  local free = q.rules.max_dead - q.letters
  local share = share_of(q, owner)
  if share.count > q.letters then -- the stream was deleted that this counts
    share.count = q.letters
    save_share(q, owner, share)
  end
  if Shares.may_use(share.count, free, 1, q.rules.max_dead) then return true end
  -- Refused rather than dropped: the message waits, and a person decides (`Settle.end_dead`).
  if not q.rules.drops_dead then return false end
  local dropped = 0
  repeat
    if not drop_oldest(q, owner) then break end
    dropped = dropped + 1
  until free + dropped > 0 or dropped == MOST_DROPPED
  if dropped > 0 then State.count_up(q, 'dead_dropped', dropped) end
  return dropped > 0
end

-- Returns the fields of a letter. The fields that another program wrote come under the tag 'l'.
local function spell_letter(id, reason, deliveries, last_error, b, group)
  local attributes = b.attributes .. ' f' .. group
  local letter = {
    'i', Messages.message_id(id, b.origin, b.key), 'r', reason, 'c', deliveries, 'e', last_error,
    'k', b.key, b.tag, b.payload,
  }
  if b.tag == 'l' then
    letter[12], letter[13], letter[14] = '', 'm', attributes
    for _, value in ipairs(Messages.foreign_fields(b.payload)) do letter[#letter + 1] = value end
    return letter
  end
  letter[13], letter[14] = 'm', attributes
  if b.headers ~= '' then letter[#letter + 1], letter[#letter + 2] = 'h', b.headers end
  return letter
end

-- Moves a message, whose body is gone from where it lay, to the dead letters. `payload` is one that lies by itself, nil
-- if that is in `bodies`; `group` its group among the failures. Returns its id.
function DeadLetters.bury(q, id, reason, attempts, last_error, body, payload, kind, group)
  local b = Messages.parse_body(body)
  b.payload = payload or Messages.payload_of(q.keys[BODIES], id, body, b)
  local deliveries = attempts + Messages.deliveries_before(b.attributes)
  local letter = spell_letter(id, reason, deliveries, last_error, b, group)
  -- At once, unlike places and counters: only Redis knows the entry's id.
  local entry_id = call('XADD', q.keys[DEAD], '*', unpack(letter)) -- at most 7,000: the fields of an entry
  if q.letters then q.letters = q.letters + 1 end
  local owner = Rules.owner_of(q.rules, b.key)
  local share = share_of(q, owner)
  local number = share.last + 1
  share.count, share.last = share.count + 1, number
  save_share(q, owner, share)
  local place = 'x:' .. entry_id .. '|' .. spell(number) .. (q.rules.parents and 'p' or '')
  add(q, 'moved', letter[2], place)
  add(q, 'moved', DeadLetters.number_field(number, owner), letter[2])
  State.count_up(q, 'dead_lettered', 1)
  Failures.note_letter(q, group)
  Journal.note_event(q, kind, letter[2], b.key, deliveries)
  return letter[2]
end

-- A message for which there is no room waits as a delayed one until `at`, marked as rejected if it was.
function DeadLetters.wait_for_room(q, a, key, id, attempts, flags, body, at)
  Due.put_off(q, a, key, at, 'd', id, attempts .. flags)
  if not q.events then return end
  local origin, owner, attributes = Messages.head_of_body(body)
  local deliveries = attempts + Messages.deliveries_before(attributes)
  Journal.note_event(q, 'p', Messages.message_id(id, origin, owner), key, deliveries, at)
end
