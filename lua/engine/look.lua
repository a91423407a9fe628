-- Verbs that look at messages without changing any: status.

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
  if not letter then return {q.now, 'unknown', '', '', -1, '', '', '', '', {}, ''} end
  local words, rest = letter[2], {}
  for at = 9, #words do rest[at - 8] = words[at] end
  if rest[4] then rest[4] = format('%d', #rest[4]) end
  local known = words[6] .. '@' .. match(found.id, '^%d+') .. '||' .. words[8]
  return {q.now, 'dead', '', '', -1, words[4], '', known, '', rest, progress}
end

-- Estimates how many messages of a stream are delivered before one that is new there: by the numbers of the first and
-- of the last, as if they were spread evenly between these.
local function ahead_in_stream(q, found)
  local key = Messages.stream_key(q, found.place)
  local left, cursor = unpack(call('HMGET', q.keys[META], key, 'h' .. found.place)) -- at most 2: the fields
  local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local highest, own = match(last[1], '%d+$') + 0, match(found.id, '%d+$') + 0
  local before = match(cursor or '0-0', '%d+$') + 0
  local share = floor((own - before - 1) * left / max(1, highest - before))
  return max(0, min(left - 1, share))
end

-- Estimates how many messages of its shard key are before one that waits outside of the streams: those in the streams,
-- then those that were given back, then those of the overflow.
local function ahead_outside(q, a, found)
  local holder = q.rules.parents and Waiting.child_of(q, found.key) or a
  if found.state == 'returned' then
    local prefix = Waiting.prefix_of(found.key)
    return a.taken + call('ZLEXCOUNT', q.keys[RETURNED], '[' .. prefix, '(' .. found.member)
  end
  local base = Waiting.overflow_base(found.key)
  return a.taken + holder.returned + Places.count_before(q, holder, base, found.record)
end

local function status_of_waiting(q, found, paused, progress)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, found.key))
  local pause = pause_of_queue(q, paused)
  local known, bare = known_of(q, found), Messages.bare_fields(found.body)
  local is_new = found.state == 'new'
  local ahead = is_new and ahead_in_stream(q, found) or ahead_outside(q, a, found)
  local reason, till = Limits.reason_of(q, a, is_new and 0 or ahead)
  if pause then reason, till = 'paused', pause end
  if is_new then
    if reason == 'window' then reason = '' end
    return {q.now, 'waiting', found.place, till, ahead, reason, '', known, '', bare, progress}
  end
  if reason == '' and (ahead == 0 or found.state == 'returned' and a.taken == 0) then
    return {q.now, 'waiting', '', '', ahead, '', '', known, '', bare, progress}
  end
  if reason == '' then reason = 'window' end
  return {q.now, 'held_back', '', till, ahead, reason, '', known, '', bare, progress}
end

-- @verb status | no-writes: where one message is, and what it waits for.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19] results: what is kept of messages
-- KEYS[20..] streams: the stream that the id names, if it names one
-- ARGV[1] message_id: as write returned it
-- ARGV[2] origin: the last part of the id, 'o' without the shard key
-- ARGV[3] id: the rest of it
-- ARGV[4] key: the shard key in the id, '' if it has none
-- Reply: {now, 'waiting' | 'held_back' | 'delayed' | 'in_flight' | 'dead' | 'done' | 'unknown', stream ('': none),
-- when it comes due, or its
--         lease or a pause ends in ms ('': not known, or none of these), how many messages are before it (-1: not
--         known), reason,
--         lease token ('': none), what is known of it ('': nothing), '1' if it was cancelled, its fields without the
--         payload,
--         its progress "ends|at|done|total|note" ('': none), of one that is done "ends|done at|kind|size"}
--         | {now} when there is no such queue
function verbs.status(KEYS, ARGV)
  if not call then begin() end
  local fields = State.fields_of_settle()
  fields[#fields + 1], fields[#fields + 2] = 'jump', 'paused'
  local q = State.open_call(KEYS, fields, 19)
  if not q then
    return {read_time()}
  end
  q.jump = Clock.read_jump(q.values[State.COMMON + 1], q.now)
  local full_id, id, paused = ARGV[1], ARGV[3], q.values[State.COMMON + 2]
  local progress = Results.read_result(KEYS[19], 'p:' .. full_id, q.now) or ''
  local found = Places.find(q, full_id, ARGV[2], id, ARGV[4])
  if found and found.state == 'dead' then return status_of_dead(q, found, progress) end
  local place = found and found.place or (match(ARGV[2], '^%d+$') or 'd')
  if not found then
    local cancelled = Places.cancelled_at(q, id, {place, 'd'})
    if cancelled then
      local token, ends = Places.find_lease(q, cancelled, id)
      return {q.now, 'in_flight', '', ends and spell(ends) or '', -1, '', token or '', '', '1', {}, progress}
    end
    local result = Results.read_result(KEYS[19], full_id, q.now)
    if not result then return {q.now, 'unknown', '', '', -1, '', '', '', '', {}, ''} end
    return {q.now, 'done', '', '', -1, '', '', '', '', {}, Results.spell_done(result)}
  end
  id = found.id
  if found.state == 'delayed' then
    local state = found.at.due > q.now and 'delayed' or 'waiting'
    local reason = find(found.at.flags, 'r', 1, true) and 'max_dead' or ''
    local known, bare = known_of(q, found), Messages.bare_fields(found.body)
    return {q.now, state, '', spell(found.at.due), -1, reason, '', known, '', bare, progress}
  end
  if found.state ~= 'in_flight' then return status_of_waiting(q, found, paused, progress) end
  local token, ends = Places.find_lease(q, place, id)
  local is_live = not ends or Clock.is_live(q, ends)
  local error = DeadLetters.error_of(q, id, 'e')
  local known = error ~= '' and '0@0||' .. error or ''
  local cancelled = Places.cancelled_at(q, id, {place}) and '1' or ''
  local state, reason = 'in_flight', ''
  if not is_live then state, reason = 'waiting', 'lease ended' end
  return {q.now, state, '', ends and spell(ends) or '', -1, reason,
    token or '', known, cancelled, Messages.bare_fields(found.body), progress}
end
