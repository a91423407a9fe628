-- Results: records of messages that are done, and of the progress of those in flight, each until its end. The hash
-- `results` has under a message's id "ends|tenant|done at|kind|tag|payload", and under 'p:' and the id
-- "ends|tenant|at|done|total|note"; times are in ms, and before a tenant stand its size and ':'. A kind is 'v' for a
-- value, or the reason why there is none; 'n' is a note about a message that is not done. `result_ends` has the same
-- fields by end. The state counts the fields ('result_count') and what they take ('result_bytes', and of each tenant
-- its share): that is bounded, so a call loads these and saves them once.
local FIELD_BYTES = 200 -- what Redis takes for an entry of both keys
local DEFAULT_BYTES = 67108864
local MOST_FORGOTTEN = 200

local function size_of(field, text) return #text + 2 * #field + FIELD_BYTES end

-- Begins a call that changes results: those that lie in these two keys. Nil if there is no such queue.
local function open_results(meta, hash, ends, now)
  local rules, odd, ttl, max_bytes, bytes, count = unpack( -- at most 6: the fields
    call('HMGET', meta, 'rules', 'odd', 'result_ttl', 'max_result_bytes', 'result_bytes', 'result_count'))
  if not rules then return nil end
  odd = State.read_odd(odd)
  return {
    meta = meta, hash = hash, ends = ends, now = now, ttl = ttl, rules = Rules.rules_of(rules),
    call = new_q{keys = {[META] = meta}, now = now, jump = Clock.read_jump(odd.jump, now)},
    max_bytes = tonumber(max_bytes or DEFAULT_BYTES), bytes = tonumber(bytes or 0), count = tonumber(count or 0),
  }
end

-- Returns whose a result is, and where the rest of its text begins. (A version before this one did not write it down.)
local function owner_of_result(text)
  local size, from = match(text, '^%d+|(%d+):()')
  if not size then return nil, match(text, '^%d+|()') end
  return sub(text, from, from + size - 1), from + size + 1
end

local function spell_result(ends, owner, rest) return ends .. '|' .. #owner .. ':' .. owner .. '|' .. rest end

local function count_bytes(r, text, bytes)
  local owner = owner_of_result(text)
  r.bytes = max(0, r.bytes + bytes)
  if owner then Shares.count(r.call, 'R:', owner, bytes) end
end

local function forget_result(r, field, text)
  call('HDEL', r.hash, field)
  call('ZREM', r.ends, field)
  count_bytes(r, text, -size_of(field, text))
  r.count = max(0, r.count - 1)
end

-- Forgets some of what has ended. Returns whether there may be more.
local function forget_ended(r)
  local ended = call('ZRANGEBYSCORE', r.ends, '-inf', r.now, 'LIMIT', 0, MOST_FORGOTTEN)
  local texts = #ended > 0 and call('HMGET', r.hash, unpack(ended)) or {} -- at most 200: the limit
  for at, field in ipairs(ended) do forget_result(r, field, texts[at] or '') end
  return #ended == MOST_FORGOTTEN
end

-- Keeps a text of a tenant in a field, which says `known` so far, or false. Returns whether there was room: that a
-- message is done (`is_mark`) is also said for a tenant that has its share of payloads, up to a quarter more.
local function keep_text(r, owner, field, ends, rest, known, is_mark)
  local text = spell_result(ends, owner, rest)
  local before = known and size_of(field, known) or 0
  local used = Shares.used(r.call, 'R:', owner) - before
  local size = size_of(field, text)
  -- The mark may have a quarter more than the share: so its caller learns that the message is done, though not of the
  -- value.
  if is_mark then used = used * 4 / 5 end
  if not Shares.may_use(used, r.max_bytes - r.bytes + before, size, r.max_bytes) then return false end
  call('HSET', r.hash, field, text)
  call('ZADD', r.ends, ends, field)
  if known then count_bytes(r, known, -before) else r.count = r.count + 1 end
  count_bytes(r, text, size)
  return true
end

local function save_results(r)
  call('HSET', r.meta, 'result_bytes', spell(r.bytes), 'result_count', r.count)
  Shares.save(r.meta, r.call)
end

-- Returns the text of a field, without the tenant, until its end has come, else nil.
function Results.read_result(key, field, now)
  local text = call('HGET', key, field)
  local ends = match(text or '', '^%d+')
  if not ends or ends + 0 <= now then return nil end
  local _, from = owner_of_result(text)
  return ends .. '|' .. sub(text, from)
end

-- Returns whether the text of a field, without the tenant, is a note: then the message is not done.
function Results.is_note(text) return match(text, '^%d+|%d+|n|') ~= nil end

-- Returns what a status says of a result: the same without the payload, and the payload's size instead.
function Results.spell_done(text)
  local head, payload = match(text, '^(%d+|%d+|%a+|)[^|]*|?(.*)$')
  return head .. #payload
end

-- Returns how each lease is: 'o' live, 'l' over, 'c' live and its message cancelled; and whose it is, its
-- tenant. All are looked up together.
local function look_at_leases(r, leases, cancelled, tokens)
  local letters, owners, handles = {}, {}, {}
  if #tokens == 0 then return letters, owners end
  local scores = call('ZMSCORE', leases, unpack(tokens)) -- at most 250: a chunk
  for i, token in ipairs(tokens) do
    local place, id, _, _, key = Leases.read_token(token)
    handles[i], owners[i] = place .. ':' .. id, Rules.owner_of(r.rules, key)
  end
  local are_cancelled = call('SMISMEMBER', cancelled, unpack(handles)) -- at most 250: a chunk
  for i, score in ipairs(scores) do
    letters[i] = not Clock.is_live(r.call, score) and 'l' or are_cancelled[i] == 1 and 'c' or 'o'
  end
  Shares.load(r.call, 'R:', owners)
  return letters, owners
end

-- Keeps one result. If there is no room for the payload, it is still said that the message is done; a note is left out.
-- Returns the letter of the reply, and whether the payload was refused.
local function keep_result(r, owner, message_id, kind, payload)
  local known, progress = unpack(call('HMGET', r.hash, message_id, 'p:' .. message_id)) -- at most 2: the fields
  local is_note = kind == 'n'
  -- A message that is done has no progress; without a kind that is all this call does.
  if progress and not is_note then forget_result(r, 'p:' .. message_id, progress) end
  if kind == '' then return 'o', false end
  local ends = spell(r.now + (r.ttl or 0))
  local head = spell(r.now) .. '|'
  local is_kept = r.ttl and keep_text(r, owner, message_id, ends, head .. kind .. '|' .. payload, known)
  if r.ttl and not is_kept and not is_note then
    keep_text(r, owner, message_id, ends, head .. 'full||', known, true)
  end
  return is_kept and 'o' or 'f', not is_kept or kind ~= 'v' and not is_note
end

-- @verb keep: keep the results of messages that their holders are about to ack. A token that is not live changes
-- nothing.
-- KEYS[1] meta: settings and counters
-- KEYS[2] leases: tokens by end
-- KEYS[3] cancelled: messages that were cancelled while they are in flight
-- KEYS[4] results: what is kept of messages
-- KEYS[5] result_ends: the same by end
-- KEYS[6] finished: ids of messages that have ended, for those who wait
-- ARGV[1..] results: four arguments each: lease token, message id, kind, and "tag|payload"; a kind '' only forgets the
--           progress, and 'n' is a note about a message that is not done
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled), f(ull): the payload was not kept}
function verbs.keep(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'leases', 'cancelled', 'results', 'result-ends', 'finished'})
  Arguments.check(ARGV, {}, {'token', 'message_id', 'kind_of_result', 'any'}, 250)
  local now = read_time()
  local tokens, ids, refused = {}, {}, 0
  check_types({KEYS[4]}, {KEYS[2], KEYS[5]}, {})
  call('SCARD', KEYS[3])
  local r = open_results(KEYS[1], KEYS[4], KEYS[5], now)
  if not r then return {now, rep('l', #ARGV / 4)} end
  -- First, so that results that have ended make room for new ones.
  forget_ended(r)
  for at = 1, #ARGV, 4 do tokens[#tokens + 1] = ARGV[at] end
  local letters, owners = look_at_leases(r, KEYS[2], KEYS[3], tokens)
  local told = {} -- by token: of one that comes twice the first result is kept
  for i, token in ipairs(tokens) do
    local message_id, kind = ARGV[4 * i - 2], ARGV[4 * i - 1]
    if letters[i] == 'o' and not told[token] then
      local is_refused
      letters[i], is_refused = keep_result(r, owners[i], message_id, kind, ARGV[4 * i])
      if is_refused then refused = refused + 1 end
      if kind ~= '' and kind ~= 'n' then ids[#ids + 1] = message_id end
    end
    letters[i] = told[token] or letters[i]
    told[token] = letters[i]
  end
  save_results(r)
  if refused > 0 then call('HINCRBY', KEYS[1], 'results_refused', refused) end
  Notifications.announce_ends(new_q{keys = {[META] = KEYS[1], [FINISHED] = KEYS[6]}, now = now}, ids)
  return {now, concat(letters)}
end

-- @verb forget_results | allow-oom: forget some results that have ended. They must not fill a server for ever that is
-- full of them.
-- KEYS[1] meta: counters
-- KEYS[2] results: what is kept of messages
-- KEYS[3] result_ends: the same by end
-- Reply: 1 if there may be more, else 0
function verbs.forget_results(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'results', 'result-ends'})
  local r = open_results(KEYS[1], KEYS[2], KEYS[3], read_time())
  if not r then return 0 end
  local more = forget_ended(r)
  save_results(r)
  return more and 1 or 0
end

-- @verb progress: note how far the work on a message is. A token that is not live changes nothing.
-- KEYS[1] meta: settings and counters
-- KEYS[2] leases: tokens by end
-- KEYS[3] cancelled: messages that were cancelled while they are in flight
-- KEYS[4] results: what is kept of messages
-- KEYS[5] result_ends: the same by end
-- ARGV[1] token: of the lease
-- ARGV[2] message_id: as write returned it
-- ARGV[3] ttl: for how long it is kept, ms
-- ARGV[4] progress: "done|total|note"
-- Reply: {now, 'o' | 'l' (lost) | 'c' (cancelled) | 'f' (full: not kept)}
function verbs.progress(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'leases', 'cancelled', 'results', 'result-ends'})
  Arguments.check(ARGV, {'token', 'message_id', 'ms', 'record'})
  local now = read_time()
  local field = 'p:' .. ARGV[2]
  local r = open_results(KEYS[1], KEYS[4], KEYS[5], now)
  if not r then return {now, 'l'} end
  local letters, owners = look_at_leases(r, KEYS[2], KEYS[3], {ARGV[1]})
  if letters[1] ~= 'o' then return {now, letters[1]} end
  check_types({KEYS[4]}, {KEYS[5]}, {})
  forget_ended(r)
  local ends = spell(now + ARGV[3])
  local rest = spell(now) .. '|' .. ARGV[4]
  local is_kept = keep_text(r, owners[1], field, ends, rest, call('HGET', KEYS[4], field))
  save_results(r)
  return {now, is_kept and 'o' or 'f'}
end

-- Returns what an `await` says of a message: '' if nothing is known. One that is dead may have a result: its holder
-- kept that, and did not come to the ack.
local function spell_end(KEYS, message_id, now)
  local letter_id = DeadLetters.entry_of(KEYS[4], message_id)
  local letter = letter_id and call('XRANGE', KEYS[5], letter_id, letter_id)[1]
  if letter then return 'x|' .. match(letter_id, '^%d+') .. '|' .. (letter[2][4] or '') end
  local text = Results.read_result(KEYS[2], message_id, now) or ''
  return Results.is_note(text) and '' or text
end

-- @verb await | allow-oom: tell which of these messages are done or dead; the caller waits for the others, if it says
-- so.
-- KEYS[1] meta: until when somebody waits
-- KEYS[2] results: what is kept of messages
-- KEYS[3] finished: ids of messages that have ended
-- KEYS[4] moved: where dead letters lie
-- KEYS[5] dead: dead letters
-- ARGV[1] waits: ms for which the caller will look at `finished`, 0 = it will not
-- ARGV[2..] ids: of messages
-- Reply: {now, the last id in `finished`, {of each: '' | "ends|done at|kind|tag|payload" | "x|died at|reason"}}
--        | {now} when there is no such queue
function verbs.await(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'results', 'finished', 'moved', 'dead'})
  Arguments.check(ARGV, {'ms'}, {'message_id'}, 1000)
  local now = read_time()
  local waits, texts = ARGV[1] + 0, {}
  local epoch, awaited = unpack(call('HMGET', KEYS[1], 'epoch', 'awaited')) -- at most 2: the fields
  if not epoch then return {now} end
  for at = 2, #ARGV do texts[at - 1] = spell_end(KEYS, ARGV[at], now) end
  local last = call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
  -- In one step with the looks: messages that end after them are announced.
  if waits > 0 and tonumber(awaited or 0) < now + waits then call('HSET', KEYS[1], 'awaited', spell(now + waits)) end
  return {now, last and last[1] or '0-0', texts}
end
