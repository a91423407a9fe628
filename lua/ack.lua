#!lua flags=allow-oom
-- ack: the work is done; forget these messages. A token that is not live changes nothing.
-- KEYS[1] meta: counters
-- KEYS[2] leases: tokens by deadline in ms
-- KEYS[3] attempts: what is known of messages delivered before
-- KEYS[4] cancelled: handles cancelled while in flight
-- KEYS[5] moved: where redriven messages lie now
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] lens: undelivered per stream
-- KEYS[8] ready: streams with something undelivered
-- KEYS[9] notifications: wakes blocked readers
-- KEYS[10] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[11] accounts: what each shard key holds
-- KEYS[12] overflow: handles that wait for room
-- KEYS[13] journal: what happened to the messages
-- KEYS[14..] streams: the bodies' streams
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] places: where the bodies lie and how many leases in each: "3*2,17*1,d*1", the streams as declared
-- ARGV[3] count: of leases; no token comes twice
-- ARGV[4] known: how many handles follow of messages that were delivered before, delayed or adopted
-- ARGV[5..] rest: tokens in the order of the places, their entry ids, known handles, original ids of redriven messages;
--            at the end what the journal needs (see `read_details`)
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled)}
--- @use schedule
local meta, leases, cancelled, bodies, count = KEYS[1], KEYS[2], KEYS[4], KEYS[6], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

--- @straight
-- The common case: messages delivered for the first time, of which no more is known (two arguments each), whose leases are live. No
-- message in flight was cancelled, and the queue has neither a cap nor a journal.
if ARGV[4] == '0' and #ARGV == 5 + 2 * count then
  local cap, journal_size, weighted, gone, acked = unpack( -- at most 5: the fields
    redis.call('HMGET', meta, 'max_in_flight', 'journal', 'weighted', 'gone', 'acked'))
  local is_common = redis.call('SCARD', cancelled) == 1 and (cap or '0') == '0' and (journal_size or '0') == '0'
    and (weighted or '0') == '0'
  if is_common and count == 1 then
    local score = redis.call('ZSCORE', leases, ARGV[5])
    if score and score % SPAN > now then
      local key = ARGV[2] == 'd*1' and bodies or KEYS[14]
      redis.call('XDEL', key, ARGV[6]) -- fails before anything has changed if this is no stream
      redis.call('ZREM', leases, ARGV[5])
      redis.call('HSET', meta, 'gone', (gone or 0) + 1, 'acked', (acked or 0) + 1)
      return {now, 'o'}
    end
  elseif is_common then
    local scores = redis.call('ZMSCORE', leases, unpack(ARGV, 5, 4 + count)) -- at most 200: a call
    for i = 1, count do is_common = is_common and scores[i] and scores[i] % SPAN > now end
    if is_common then
      -- The bodies lie in one key after the other. Types are looked at before the first effect.
      local keys, sizes, from, next_stream = {}, {}, 5 + count, 14
      for place, size in string.gmatch(ARGV[2], '(%w+)%*(%d+)') do
        local at = #keys + 1
        if place == 'd' then keys[at] = bodies else keys[at], next_stream = KEYS[next_stream], next_stream + 1 end
        sizes[at] = tonumber(size)
        redis.call('XLEN', keys[at])
      end
      for at, key in ipairs(keys) do
        redis.call('XDEL', key, unpack(ARGV, from, from + sizes[at] - 1)) -- at most 200: a call
        from = from + sizes[at]
      end
      redis.call('ZREM', leases, unpack(ARGV, 5, 4 + count)) -- at most 200: a call
      redis.call('HSET', meta, 'gone', (gone or 0) + count, 'acked', (acked or 0) + count)
      return {now, string.rep('o', count)}
    end
  end
end

--- @general
--- @use time, leases
local jump, waiting, streams, fair, cap, journal_size, weighted, total_in_flight = unpack( -- at most 8: the fields
  redis.call('HMGET', meta, 'jump', 'waiting', 'streams', 'fair', 'max_in_flight', 'journal', 'weighted', 'total_in_flight'))
local q = {
  meta = meta, leases = leases, attempts = KEYS[3], cancelled = cancelled, moved = KEYS[5], bodies = bodies, lens = KEYS[7],
  ready = KEYS[8], notifications = KEYS[9], redelivery = KEYS[10], accounts = KEYS[11], overflow = KEYS[12], journal = KEYS[13],
  now = now, jump = read_jump(jump, now), journal_size = tonumber(journal_size or '0'),
}
local repeated, known = ARGV[1] == '1', tonumber(ARGV[4])
local last_token, last_id = 4 + count, 4 + 2 * count
local last_known, last_origin, details_text = last_id + known, #ARGV - 1, ARGV[#ARGV]
local has_journal = q.journal_size > 0

-- The bodies lie in streams, and those of messages that were delayed or held back in `later`.
local keys, places, sizes = {d = q.bodies}, {}, {}
for place, size in string.gmatch(ARGV[2], '(%w+)%*(%d+)') do
  places[#places + 1], sizes[place] = place, tonumber(size)
  if place ~= 'd' then keys[place] = KEYS[13 + #places - (sizes['d'] and 1 or 0)] end
end

-- In the common case all leases are live, and no message that is in flight was cancelled.
local scores = redis.call('ZMSCORE', q.leases, unpack(ARGV, 5, last_token)) -- at most 500: a chunk
local all_live = redis.call('SCARD', q.cancelled) == 1
for i = 1, count do all_live = all_live and is_live(q, scores[i]) end
local is_plain = all_live and not (has_journal and details_text == '')

-- Redis does not roll a script back: a key of another type must be found before the first effect.
for _, place in ipairs(places) do redis.call('XLEN', keys[place]) end
if known > 0 or not is_plain then redis.call('HLEN', q.attempts) end
if last_origin > last_known or not is_plain then redis.call('HLEN', q.moved) end

local has_limits = string.find(weighted or '', '+', 1, true)
if fair == '1' and ((cap or '0') ~= '0' or has_limits) then
  --- @use keys, leases, accounts, window
  -- There is a cap of what is in flight. So what the shard keys of these deliveries hold back may come now.
  check_types({q.lens, q.accounts, q.attempts}, {q.ready, q.redelivery, q.overflow}, {q.notifications})
  q.waiting_until, q.stream_count, q.lengths = tonumber(waiting), tonumber(streams), {}
  q.positions_from = tonumber(redis.call('HGET', q.meta, 'n'))
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
  end
  local shard_keys = {}
  for i = 1, count do
    local _, shard_key = split_owner(ARGV[4 + i])
    if shard_key and is_live(q, scores[i]) then shard_keys[#shard_keys + 1] = shard_key end
  end
  load_accounts(q, shard_keys)
  for _, shard_key in ipairs(shard_keys) do release_delivery(q, shard_key) end
  close_accounts(q)
end

if has_limits and (total_in_flight or '0') ~= '0' then
  --- @use notifications
  -- There is a cap of the whole queue, and readers may be blocked by it.
  q.waiting_until = tonumber(waiting)
  for _ = 1, count do notify_reader(q, '') end
end

if is_plain then
  redis.call('ZREM', q.leases, unpack(ARGV, 5, last_token)) -- at most 500
  if known > 0 then redis.call('HDEL', q.attempts, unpack(ARGV, last_id + 1, last_known)) end -- at most 500
  if last_origin > last_known then redis.call('HDEL', q.moved, unpack(ARGV, last_known + 1, last_origin)) end -- at most 500
  local at = last_token + 1
  for _, place in ipairs(places) do
    redis.call('XDEL', keys[place], unpack(ARGV, at, at + sizes[place] - 1)) -- at most 500
    at = at + sizes[place]
  end
  redis.call('HINCRBY', q.meta, 'gone', count)
  redis.call('HINCRBY', q.meta, 'acked', count)
  if has_journal then
    --- @use journal
    append_events(q, count, string.rep('a', count) .. '\n' .. details_text)
  end
  return {q.now, string.rep('o', count)}
end

-- Some of these leases are lost, or some messages were cancelled meanwhile: one is settled after the other.
--- @use leases, messages, journal
local letters, details = {}, nil
if has_journal then
  begin_events(q)
  details = read_details(details_text)
end
for i = 1, count do
  local token = ARGV[4 + i]
  local place, id, deliveries = split_token(token)
  local handle = place .. ':' .. id
  if not is_live(q, scores[i]) then
    -- A repeated ack whose message is gone was done by the first try (or by its next holder: done is done).
    letters[i] = repeated and #redis.call('XRANGE', keys[place], id, id) == 0 and 'o' or 'l'
  else
    redis.call('ZREM', q.leases, token)
    if redis.call('SREM', q.cancelled, handle) == 1 then
      letters[i] = 'c'
      forget_cancelled(q, handle)
    else
      letters[i] = 'o'
      redis.call('HINCRBY', q.meta, 'gone', 1)
      forget_message(q, keys[place], id, handle)
      redis.call('HINCRBY', q.meta, 'acked', 1)
      if details then
        local message_id, shard_key = details.ids[i] or id .. '-' .. place, details.shard_keys[i] or ''
        note_event(q, 'a', message_id, shard_key, details.counts[i] or deliveries)
      end
    end
  end
end
if details then save_events(q, details.client) end
return {q.now, table.concat(letters)}
