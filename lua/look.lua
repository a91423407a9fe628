-- The verb status: where one message is, and what it waits for.

-- The reply has eleven parts; most say nothing in most states.
local function answer(q, state, told)
  return {
    q.now, state, told.stream or '', told.till or '', told.ahead or -1, told.reason or '', told.token or '',
    told.known or '', told.cancelled or '', told.bare or {}, told.progress or '',
  }
end

-- Returns the message's fields, bare unless the call wants all of it.
local function fields_of(q, found)
  local _, fields = Messages.fields_of_body(q.keys[BODIES], found.id, found.body, found.payload, not found.is_whole)
  return fields
end

local function known_of(q, found)
  local at = found.at
  return at and DeadLetters.spell_known(q, found.id, at.attempts, at.flags, at.since or at.due) or ''
end

local function pause_of_queue(q, paused)
  local till, length = match(paused or '', '^(%d+),(%d+)$')
  if not till then return nil end
  till = min(till + 0, q.now + length)
  if till > q.now then return till < FAR and spell(till) or '' end
end

local function status_of_dead(q, found, progress)
  local letter = call('XRANGE', q.keys[DEAD], found.id, found.id)[1]
  if not letter then return answer(q, 'unknown', {}) end
  local words, rest = letter[2], {}
  for at = 9, #words do rest[at - 8] = words[at] end
  -- The payload's size replaces it, as in every reply without payloads.
  if rest[4] and not found.is_whole then rest[4] = format('%d', #rest[4]) end
  local class, reason = match(DeadLetters.group_of(words), '|([^|]*)|(.*)$')
  local kind = class and Failures.spell_kind(class, reason) or ''
  local known = concat({words[6] .. '@' .. match(found.id, '^%d+'), '', kind, words[8]}, '|')
  return answer(q, 'dead', {reason = words[4], known = known, bare = rest, progress = progress})
end

-- Estimates how many messages of a stream are delivered before one that is new there: by the numbers of the first and
-- of the last, as if they were spread evenly between these.
local function ahead_in_stream(q, found)
  local key = Messages.stream_key(q, found.place)
  local left, cursor = unpack(call('HMGET', q.keys[META], key, 'h' .. found.place)) -- at most 2: the fields
  local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local highest = match(last[1], '%d+$') + 0
  local own = match(found.id, '%d+$') + 0
  local before = match(cursor or '0-0', '%d+$') + 0
  local share = floor((own - before - 1) * left / max(1, highest - before))
  return max(0, min(left - 1, share))
end

-- Estimates how many messages of its shard key are before one that waits outside of the streams: those in the streams,
-- then those that were given back, then those of the overflow.
local function ahead_outside(q, a, found)
  local holder = q.rules.parents and Children.child_of(q, found.key) or a
  if found.state == 'returned' then
    local prefix = Waiting.prefix_of(found.key)
    return a.taken + call('ZLEXCOUNT', q.keys[RETURNED], '[' .. prefix, '(' .. found.member)
  end
  local base = Waiting.overflow_base(found.key)
  return a.taken + holder.returned + Places.count_before(q, holder, base, found.record)
end

local function status_of_waiting(q, found, paused, progress)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, found.key))
  local is_new = found.state == 'new'
  local ahead = is_new and ahead_in_stream(q, found) or ahead_outside(q, a, found)
  local reason, till = Limits.reason_of(q, a, is_new and 0 or ahead)
  local pause = pause_of_queue(q, paused)
  if pause then reason, till = 'paused', pause end
  local told = {ahead = ahead, reason = reason, till = till, known = known_of(q, found), progress = progress}
  told.bare = fields_of(q, found)
  if is_new then
    told.stream = found.place
    if reason == 'window' then told.reason = '' end
    return answer(q, 'waiting', told)
  end
  if reason == '' and (ahead == 0 or found.state == 'returned' and a.taken == 0) then
    told.till = ''
    return answer(q, 'waiting', told)
  end
  if reason == '' then told.reason = 'window' end
  return answer(q, 'held_back', told)
end

local function status_of_delayed(q, found, progress)
  return answer(q, found.at.due > q.now and 'delayed' or 'waiting', {
    till = spell(found.at.due), reason = find(found.at.flags, 'r', 1, true) and 'max_dead' or '',
    known = known_of(q, found), bare = fields_of(q, found), progress = progress,
  })
end

-- It is nowhere any more: perhaps its result is kept.
local function status_of_over(q, full_id)
  local result = Results.read_result(q.keys[19], full_id, q.now)
  if not result or Results.is_note(result) then return answer(q, 'unknown', {}) end
  return answer(q, 'done', {progress = Results.spell_done(result)})
end

local function status_of_flight(q, found, progress)
  local token, ends = Places.find_lease(q, found.place, found.id)
  local error, kind = DeadLetters.error_of(q, found.id, 'e')
  local told = {token = token, till = ends and spell(ends), progress = progress}
  told.known = error ~= '' and concat({'0@0', '', kind, error}, '|') or ''
  told.cancelled = Places.cancelled_at(q, found.id, {found.place}) and '1' or ''
  told.bare = fields_of(q, found)
  return answer(q, 'in_flight', told)
end

-- The lease is over, but no read has taken it back yet.
local function status_of_ended(q, full_id, found, progress)
  if Places.cancelled_at(q, found.id, {found.place}) then return status_of_over(q, full_id) end
  local reason = Ended.is_last(q, found.at.attempts) and 'max_deliveries' or 'lease ended'
  return answer(q, 'waiting', {
    token = found.token, till = spell(found.at.since), reason = reason, known = known_of(q, found),
    bare = fields_of(q, found), progress = progress,
  })
end

-- A message that is nowhere may have been cancelled: it is gone from where it lay, and its lease is still there.
local function status_of_gone(q, id, full_id, place, progress)
  local cancelled = Places.cancelled_at(q, id, {place, 'd'})
  if cancelled and not Ended.token_of(q, cancelled, id) then
    local token, ends = Places.find_lease(q, cancelled, id)
    local till = ends and spell(ends)
    return answer(q, 'in_flight', {token = token, till = till, cancelled = '1', progress = progress})
  end
  return status_of_over(q, full_id)
end

local function status_of(q, full_id, id, place, found)
  local progress = Results.read_result(q.keys[19], 'p:' .. full_id, q.now) or ''
  if not found then return status_of_gone(q, id, full_id, place, progress) end
  if found.state == 'dead' then return status_of_dead(q, found, progress) end
  if found.state == 'delayed' then return status_of_delayed(q, found, progress) end
  if found.state == 'in_flight' then return status_of_flight(q, found, progress) end
  if found.state == 'ended' then return status_of_ended(q, full_id, found, progress) end
  return status_of_waiting(q, found, q.odd.paused, progress)
end

-- @verb status | no-writes: where one message is, and what it waits for.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] results: what is kept of messages
-- KEYS[20..] streams: the stream that the id names, if it names one
-- ARGV[1] message_id: as write returned it
-- ARGV[2] origin: the last part of the id, 'o' without the shard key
-- ARGV[3] id: the rest of it
-- ARGV[4] key: the shard key in the id, '' if it has none
-- ARGV[5] whole: '1' = the reply has the fields with the payload, and what is kept as the message's result or as a note
-- Reply: {now, 'waiting' | 'held_back' | 'delayed' | 'in_flight' | 'dead' | 'done' | 'unknown', stream ('': none), when
--        it comes due, or its lease or a pause ends in ms ('': not known, or none of these), how many messages are
--        before it (-1: not known), reason, lease token ('': none), what is known of it ('': nothing), '1' if it was
--        cancelled, its fields without the payload, its progress "ends|at|done|total|note" ('': none), of one that is
--        done "ends|done at|kind|size"; if the whole is wanted what is kept "ends|at|kind|tag|payload" ('': nothing)}
--        | {now} when there is no such queue
function verbs.status(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18, 'results')
  Arguments.check(ARGV, {'message_id', 'origin', 'id', 'key_or_none', 'flag'})
  local q = State.open_call(KEYS, 19)
  if not q then
    return {read_time()}
  end
  q.jump = Clock.read_jump(q.odd.jump, q.now)
  local full_id, origin, id = ARGV[1], ARGV[2], ARGV[3]
  local is_whole = ARGV[5] == '1'
  local found = Places.find(q, full_id, origin, id, ARGV[4])
  if found then found.is_whole = is_whole end
  local reply = status_of(q, full_id, id, match(origin, '^%d+$') or 'd', found)
  if is_whole then reply[12] = Results.read_result(KEYS[19], full_id, q.now) or '' end
  return reply
end
