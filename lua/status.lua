#!lua flags=no-writes
-- status: where one message is, and what it waits for.
-- KEYS[1] meta: counters and rules
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] leases: tokens by deadline in ms
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] accounts: what each shard key holds
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] dead: dead letters
-- KEYS[13] results: what is kept of messages
-- KEYS[14..] streams: the stream that the id names, unless it names the store
-- ARGV[1] message_id: as write returned it
-- ARGV[2] place: the last part of the id
-- ARGV[3] id: the rest of it
-- Reply: {now, 'waiting' | 'held_back' | 'delayed' | 'in_flight' | 'dead' | 'done' | 'unknown', stream ('': none), when it comes due, or its
--         lease or a pause ends in ms ('': not known, or none of these), how many messages are before it (-1: not known), reason,
--         lease token ('': none), what is known of it ('': nothing), '1' if it was cancelled, its fields (see `strip_payload`),
--         its progress "ends|at|done|total|note" ('': none), of one that is done "ends|done at|kind|size"}
--         | {now} when there is no such queue
--- @use time, accounts, attempts, children, leases, messages, reasons, redelivery, results, schedule, whereabouts
local q = {
  meta = KEYS[1], lens = KEYS[2], leases = KEYS[3], delayed = KEYS[4], redelivery = KEYS[5], bodies = KEYS[6], attempts = KEYS[7],
  cancelled = KEYS[8], moved = KEYS[9], accounts = KEYS[10], overflow = KEYS[11], dead = KEYS[12], results = KEYS[13],
  now = read_clock(),
}
local message_id, place, id, stream = ARGV[1], ARGV[2], ARGV[3], KEYS[14]
local written, fair, jump, paused = unpack(redis.call('HMGET', q.meta, 'n', 'fair', 'jump', 'paused')) -- at most 4: the fields
if not written then return {q.now} end
q.written, q.is_fair, q.jump = tonumber(written), fair == '1', read_jump(jump, q.now)

local progress = read_result(q, 'p:' .. message_id) or ''

-- Of a message that was cancelled in flight nothing but its lease is left, and without its shard key that is hard to find.
local found = find_message(q, message_id, place, id, stream)
if found and found.is_dead then
  local letter = redis.call('XRANGE', q.dead, found.id, found.id)[1]
  if not letter then return {q.now, 'unknown', '', '', -1, '', '', '', '', {}, ''} end
  local words, rest = letter[2], {}
  for at = 9, #words do rest[at - 8] = words[at] end
  local known = spell_attempts(words[6], '', words[8], tonumber(string.match(found.id, '^%d+')))
  return {q.now, 'dead', '', '', -1, words[4], '', known, '', strip_payload(rest), progress}
end
local fields = found and found.fields
if found and found.is_cancelled then
  local token, score = find_lease(q, found.handle, false)
  local ends = score and string.format('%.0f', lease_end(q, score)) or ''
  return {q.now, 'in_flight', '', ends, -1, '', token or '', '', '1', {}, progress}
end
if not fields then
  local result = read_result(q, message_id)
  return {q.now, result and 'done' or 'unknown', '', '', -1, '', '', '', '', {}, result and spell_done(result) or ''}
end

local known, counted = redis.call('HGET', q.attempts, found.handle) or '', q.is_fair and found.place ~= 'l' and fields[1] == 'K'
local shard_key, bare, account = counted and fields[2], strip_payload(fields), nil
if counted then
  begin_reasons(q)
  account = find_account(q, shard_key)
end
local pause, pause_ends = find_pause(q, paused, account)
if found.score or found.is_new then
  local number = found.is_new and found.place or string.format('%.0f', math.floor(found.score / POSITIONS))
  return {q.now, 'waiting', number, pause_ends, estimate_in_stream(q, found, number), pause, '', known, '', bare, progress}
end

-- What is due waits for the next read to take it back. One that has no room among the dead letters is delayed meanwhile.
if found.due then
  local due, _, _, _, is_rejected = found.due % SPAN, parse_attempts(known ~= '' and known)
  local state, reason = due > q.now and 'delayed' or 'waiting', is_rejected and 'max_dead' or ''
  return {q.now, state, '', string.format('%.0f', due), -1, reason, '', known, '', bare, progress}
end

-- Held back: a pause, a limit or the window has no room for it.
if counted then
  local held = q.has_parents and find_child(q, account, shard_key).held or account.held
  local ahead = estimate_in_overflow(q, shard_key, found, held)
  if ahead then
    local reason = pause ~= '' and pause or find_reason(q, account)
    return {q.now, 'held_back', '', pause_ends, account.shared + ahead, reason, '', known, '', bare, progress}
  end
end

-- In flight, or its lease has ended: then it waits for the next read to take it back.
local token, score = find_lease(q, found.handle, shard_key)
local ends = score and string.format('%.0f', lease_end(q, score)) or ''
local state = score and not is_live(q, score) and 'waiting' or 'in_flight'
return {q.now, state, '', ends, -1, state == 'waiting' and 'lease ended' or '', token or '', known, '', bare, progress}
