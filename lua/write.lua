#!lua
-- write: store messages, all or none, each in the shortest stream of its shard, or in the store of delayed ones.
-- A repeated call of a producer (same number of its sequence) changes nothing and returns the same ids.
-- KEYS[1] meta: epoch, counters, the id clock
-- KEYS[2] lens: per stream: undelivered messages, and the cursor below the oldest of them
-- KEYS[3] ready: streams that have something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] delayed: not due yet, by due time in ms
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of delayed messages
-- KEYS[8] dedup: dedup keys, producer sequences and bulk offsets, each with its end
-- KEYS[9] dedup_index: dedup keys by end
-- KEYS[10] accounts: what each shard key holds
-- KEYS[11] shard_keys: shard keys of what is delayed
-- KEYS[12] overflow: handles that wait for room
-- KEYS[13] journal: what happened to the messages
-- KEYS[14] producers: sequences of producers by end
-- KEYS[15] bulk_offsets: offsets of bulk writes by end
-- KEYS[16] due: when the buckets of the timed indexes are due
-- KEYS[17..] streams: those that the shards of this call may choose from
-- ARGV[1] epoch: the caller's idea of it
-- ARGV[2] producer: the field of its sequence or of its bulk write's partition, '' for none: then nobody repeats this call
-- ARGV[3] sequence: "number of this call|ms for which it may be repeated"; for a bulk write see `check_offset`
-- ARGV[4] dedup_window: for how long dedup keys are remembered, ms
-- ARGV[5] max_dedup: how many of them at most
-- ARGV[6] keyed: how many dedup keys and unique keys the messages of this call carry
-- ARGV[7] max_len: most messages not yet settled, 0 for no bound
-- ARGV[8] count: messages in this call
-- ARGV[9] declared: how many streams
-- ARGV[10] stride: arguments per message: 4, or 6 when one of them has headers or options
-- ARGV[11..] rest: the numbers of the declared streams, then of each message: shard (see modules/shards), shard key, tag,
--            payload, and with a stride of 6 headers and options ('' or see `read_options`)
-- Reply: {'OK', "ms|n|a,b"} | {'EPOCH'} | {'STALE'} | {'FULL', name of the bound, messages "1,5"} | {'COUNTED', batch, stored, mark}
--        | {'FORGOTTEN'} | {'TAKEN', "number:id,..."}: messages whose unique keys others have, with their ids ('': one of this call)
--        Of each message its place if it is new, else its id: new ids are ms-(n+1)-place, ms-(n+2)-place, ...
local meta, lens, ready, notifications, dedup, accounts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[8], KEYS[10]
local bodies, dedup_index, overflow, producers, bulk_offsets = KEYS[6], KEYS[9], KEYS[12], KEYS[14], KEYS[15]
local epoch, producer, sequence, count, declared, stride = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local first_stream, first_message, max_len = 16, 11 + declared, ARGV[7]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local present_epoch, written, last_ms, waiting, journal_size, fair, window, cap, parents, weighted, max_backlog = unpack( -- at most 11: the fields
  redis.call('HMGET', meta, 'epoch', 'n', 'ms', 'waiting', 'journal', 'fair', 'window', 'max_in_flight', 'parents', 'weighted', 'max_backlog'))
if present_epoch ~= epoch then return {'EPOCH'} end
local before = tonumber(written)

--- @straight
-- The common case: messages without headers and options (a stride of 4). The queue has room and no journal, and where it is fair
-- no rule but the window.
if stride == '4' and declared < 256 and (journal_size or '0') == '0'
  and (max_len == '0' or before + count + redis.call('HGET', meta, 'adopted') - redis.call('HGET', meta, 'gone') <= max_len + 0)
  and (fair ~= '1' or (cap or '0') == '0' and parents ~= '1' and (weighted or '0') == '0' and (max_backlog or '0') == '0')
then
  -- The producer's last call is known, this one comes after it, and it need not be moved in the index of producers yet.
  local known = producer ~= '' and redis.call('HGET', dedup, producer) or ''
  local number, keep = string.match(sequence, '^(%d+)|(%d+)$')
  local ends, last = string.match(known, '^(%d+)|(%d+)|')
  local is_next = number and ends and tonumber(last) < tonumber(number) and ends - now >= tonumber(keep)

  -- Every 32 messages a write forgets what has ended. If there is anything, the general part does so.
  if is_next and before % 32 < count then
    local until_now = string.format('%.0f', now)
    is_next = redis.call('ZCOUNT', producers, '-inf', until_now) == 0 and redis.call('ZCOUNT', bulk_offsets, '-inf', until_now) == 0
      and redis.call('ZCOUNT', dedup_index, '-inf', until_now) == 0
  end
  local is_windowed, is_awaited = fair == '1' and (window or '0') ~= '0', tonumber(waiting) > now
  local ms = now > tonumber(last_ms) and string.format('%.0f', now) or last_ms
  local prefix, mark = ms .. '-', is_windowed and 'K' or 'k'

  if is_next and count == 1 then
    -- With a window: how many messages the shard key has in the streams and in its overflow, and how many more it may have there.
    local shard, shard_key = ARGV[first_message], ARGV[first_message + 1]
    local field, shared, behind, active, held, room = nil, '0', '0', nil, nil, 1
    if is_windowed then
      field = 't:' .. shard_key
      local sum, account = unpack(redis.call('HMGET', accounts, 'sum', field)) -- at most 2: the fields
      active, held = string.match(sum or '0 0', '^(%d+) (%d+)$')
      shared, behind = string.match(account or '0 0', '^(%d+) (%d+)$')
      local others, places = active and active - (shared == '0' and 0 or 1), tonumber(window)
      if active and others < 8 then places = math.max(places, math.floor(8 / (others + 1))) end
      room = active and behind == '0' and places - shared or 0
    end
    if room > 0 then
      -- The shortest stream of the shard, and of several the first. Of each the shard has a byte, its place among those declared.
      local lengths = redis.call('HMGET', lens, unpack(ARGV, 11, 10 + declared)) -- at most 255: so many are declared
      local to, fewest = nil, 9e15
      for at = 1, #shard do
        local position = string.byte(shard, at)
        local length = tonumber(lengths[position] or '0')
        if length < fewest then to, fewest = position, length end
        if length == 0 then break end
      end

      -- Redis does not roll a script back, so types are looked at before the first effect, which is the append.
      local place, n = ARGV[10 + to], before + 1
      if fewest == 0 then redis.call('ZCARD', ready) end
      if is_awaited then redis.call('XLEN', notifications) end
      redis.call('XADD', KEYS[first_stream + to], prefix .. n, mark, shard_key,
        ARGV[first_message + 2], ARGV[first_message + 3])
      if is_awaited then redis.call('XADD', notifications, 'MAXLEN', '~', 10000, '*', 's', place) end
      if fewest == 0 then
        redis.call('ZADD', ready, place, place)
        redis.call('HSET', lens, place, '1', 'h' .. place, prefix .. before)
      else
        redis.call('HSET', lens, place, fewest + 1)
      end
      if is_windowed and shared == '0' then
        redis.call('HSET', accounts, field, '1 0', 'sum', active + 1 .. ' ' .. held)
      elseif is_windowed then
        redis.call('HSET', accounts, field, shared + 1 .. ' 0')
      end
      redis.call('HSET', meta, 'n', n, 'ms', ms)
      local stored = ms .. '|' .. before .. '|' .. place
      redis.call('HSET', dedup, producer, ends .. '|' .. number .. '|' .. stored)
      return {'OK', stored}
    elseif active and behind then
      -- The shard key has no room, or something of it is held back already: so is this message. Its body lies apart until it is let
      -- in, and the overflow has its number behind all others of the shard key, with the streams that it may go to.
      local numbers, n = {}, before + 1
      for at = 1, #shard do numbers[at] = ARGV[10 + string.byte(shard, at)] end
      redis.call('ZCARD', overflow)
      redis.call('XADD', bodies, prefix .. n, 'K', shard_key, ARGV[first_message + 2], ARGV[first_message + 3])
      local letter = string.char(64 + #tostring(n))
      redis.call('ZADD', overflow, 0,
        #shard_key .. ':' .. shard_key .. ':' .. letter .. n .. ':' .. table.concat(numbers, ',') .. ':d:' .. ms)
      redis.call('HSET', accounts, field, shared .. ' ' .. behind + 1, 'sum', active .. ' ' .. held + 1)
      redis.call('HSET', meta, 'n', n, 'ms', ms)
      local stored = ms .. '|' .. before .. '|d'
      redis.call('HSET', dedup, producer, ends .. '|' .. number .. '|' .. stored)
      return {'OK', stored}
    end
  elseif is_next then
    -- Many messages. With a window: the accounts of their shard keys, each once. All of them have room for all of their messages.
    local keys, values, last_message = KEYS, ARGV, first_message + 4 * count - 4 -- a local is found faster than a global
    local has_room, fields, size, index_of, shared, sum, active, held = true, {'sum'}, 1, {}, nil, nil, nil, nil
    if is_windowed then
      for at = first_message + 1, last_message + 1, 4 do
        local shard_key = values[at]
        if not index_of[shard_key] then
          size = size + 1
          fields[size], index_of[shard_key] = 't:' .. shard_key, size
        end
      end
      shared = redis.call('HMGET', accounts, unpack(fields)) -- at most 251: one for each message, and the sum
      sum = shared[1] or '0 0'
      active, held = string.match(sum, '^(%d+) (%d+)$')
      has_room, active = active ~= nil, tonumber(active)
      for index = 2, size do
        local account, taken = shared[index], 0
        if account then taken = tonumber(string.match(account, '^(%d+) 0$')) end
        if not taken then has_room = false break end
        shared[index] = taken
      end
      for at = first_message + 1, has_room and last_message + 1 or 0, 4 do
        local index, places = index_of[values[at]], tonumber(window)
        local taken = shared[index]
        local others = active - (taken == 0 and 0 or 1)
        if others < 8 then places = math.max(places, math.floor(8 / (others + 1))) end
        has_room = taken < places
        if not has_room then break end
        if taken == 0 then active = active + 1 end
        shared[index] = taken + 1
      end
    end
    if has_room then
      -- Where each of them goes, as above. `first` has the first new message of each stream that was empty.
      local lengths = redis.call('HMGET', lens, unpack(values, 11, 10 + declared)) -- at most 255: so many are declared
      for position = 1, declared do lengths[position] = tonumber(lengths[position] or '0') end
      local targets, gained, first, is_any_empty, n, byte = {}, {}, {}, false, before, string.byte
      for at = first_message, last_message, 4 do
        local shard, to, fewest = values[at], nil, 9e15
        for i = 1, #shard, 2 do -- two at a time, since calling a function takes longer than all else here
          local one, other = byte(shard, i, i + 1)
          local length, other_length = lengths[one], lengths[other] or 9e15 -- behind the last one there may be no other
          if length < fewest then to, fewest = one, length end
          if length == 0 then break end
          if other_length < fewest then to, fewest = other, other_length end
          if other_length == 0 then break end
        end
        n = n + 1
        if fewest == 0 then first[to], is_any_empty = n, true end
        targets[n - before], lengths[to], gained[to] = to, fewest + 1, true
      end

      -- Types are looked at before the first effect.
      if is_any_empty then redis.call('ZCARD', ready) end
      if is_awaited then redis.call('XLEN', notifications) end
      for to in pairs(gained) do redis.call('XLEN', keys[first_stream + to]) end
      local places, at = targets, first_message
      for i = 1, count do
        local to = targets[i]
        local place = values[10 + to]
        redis.call('XADD', keys[first_stream + to], prefix .. before + i, mark, values[at + 1], values[at + 2], values[at + 3])
        if is_awaited then redis.call('XADD', notifications, 'MAXLEN', '~', 10000, '*', 's', place) end
        places[i], at = place, at + 4
      end

      -- What has changed is written down: the streams, the accounts, the counters, and the producer's call.
      local changed, woken, texts = {}, {}, {}
      for to in pairs(gained) do
        local place = values[10 + to]
        changed[#changed + 1], changed[#changed + 2] = place, lengths[to]
        if first[to] then
          woken[#woken + 1], woken[#woken + 2] = place, place
          changed[#changed + 1], changed[#changed + 2] = 'h' .. place, prefix .. first[to] - 1
        end
      end
      if is_any_empty then redis.call('ZADD', ready, unpack(woken)) end -- at most 500: two for each message
      redis.call('HSET', lens, unpack(changed)) -- at most 1,000: four for each message
      if is_windowed then
        local new_sum = active .. ' ' .. held
        for index = 2, size do
          texts[2 * index - 3], texts[2 * index - 2] = fields[index], shared[index] .. ' 0'
        end
        if new_sum ~= sum then texts[2 * size - 1], texts[2 * size] = 'sum', new_sum end
        redis.call('HSET', accounts, unpack(texts)) -- at most 502: two for each message, and the sum
      end
      redis.call('HSET', meta, 'n', n, 'ms', ms)
      local stored = ms .. '|' .. before .. '|' .. table.concat(places, ',')
      redis.call('HSET', dedup, producer, ends .. '|' .. number .. '|' .. stored)
      return {'OK', stored}
    end
  end
end

--- @general
--- @use producers, streams, shards, messages, notifications
local q = {
  meta = meta, lens = lens, ready = ready, notifications = notifications, delayed = KEYS[5], bodies = bodies,
  attempts = KEYS[7], dedup = dedup, dedup_index = dedup_index, accounts = accounts, shard_keys = KEYS[11], overflow = overflow,
  journal = KEYS[13], producers = producers, bulk_offsets = bulk_offsets, due = KEYS[16],
  now = now, dedup_window = tonumber(ARGV[4]), declared = declared, numbers = {}, mark = 'k',
}
local max_dedup, keyed = tonumber(ARGV[5]), tonumber(ARGV[6])
local n, ms, has_options, is_fair = before, math.max(now, tonumber(last_ms)), stride == '6', fair == '1'
stride = tonumber(stride)
-- A number as text keeps 14 digits: far more messages than a queue will ever have, and joining is faster than formatting.
q.prefix, q.waiting_until, q.journal_size = string.format('%.0f-', ms), tonumber(waiting), tonumber(journal_size or '0')

-- A call that was done before changes nothing. It writes a time all the same, one that is there already: WAIT waits for what
-- its own connection wrote last, and the first try was made on another one.
local progress, answer
if producer ~= '' then
  local number, keep = string.match(sequence, '^(%d+)|(%d+)$')
  if number then
    progress, answer = check_sequence(q, producer, tonumber(number), tonumber(keep))
  else
    --- @use producers
    progress, answer = check_offset(q, producer, sequence)
  end
  if answer and (answer[1] == 'OK' or answer[1] == 'COUNTED') then redis.call('HSET', q.meta, 'ms', last_ms) end
  if answer then return answer end
end

local options, repeated, known = {}, {}, 0
if has_options then
  --- @use messages
  for i = 1, count do
    local text = ARGV[first_message + i * stride - 1]
    if text ~= '' then options[i] = read_options(q, text) end
  end
  if keyed > 0 then
    --- @use scopes, unique
    local scope, conflicts = redis.call('HGET', meta, 'key_scope'), nil
    for i, option in pairs(options) do scope_keys(scope, ARGV[first_message + (i - 1) * stride + 1], option) end
    repeated, known, conflicts = find_earlier(q, options, count)
    if #conflicts > 0 then return {'TAKEN', table.concat(conflicts, ',')} end
  end
end

-- What would go beyond the queue's bounds is refused whole.
if max_len ~= '0' then
  local gone, adopted = unpack(redis.call('HMGET', meta, 'gone', 'adopted')) -- at most 2: the fields
  if written + adopted - gone + count - known > tonumber(max_len) then return {'FULL', 'max_len'} end
end
-- More is forgotten than comes in, so that little is left after a rush; also when no more comes in, now and then.
if n % 32 < count then
  forget_ended(q, q.producers, 64)
  forget_ended(q, q.bulk_offsets, 64)
  if keyed == 0 then forget_ended(q, q.dedup_index, 64) end
end
if keyed > known then
  forget_ended(q, q.dedup_index, 2 * keyed + 4)
  if redis.call('ZCARD', q.dedup_index) - 1 + keyed - known > max_dedup then return {'FULL', 'max_dedup'} end
end

for i = 1, q.declared do q.numbers[i] = ARGV[10 + i] end
local numbers, undelivered = q.numbers, read_undelivered(q, q.numbers)
q.undelivered = undelivered

-- Fairness: the accounts of this call's shard keys are loaded. Messages count in them from now on if there is any rule.
local counts = false
if is_fair then
  --- @use accounts, window
  local shard_keys = {}
  for i = 1, count do shard_keys[i] = ARGV[first_message + (i - 1) * stride + 1] end
  read_rules(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
    begin_looks(q)
  end
  load_accounts(q, shard_keys)
  local beyond = list_beyond_backlog(q, shard_keys, repeated)
  if #beyond > 0 then return {'FULL', 'max_backlog', table.concat(beyond, ',')} end
  counts = q.window > 0 or q.counts_flight or q.max_backlog > 0
  q.mark, q.runs = counts and 'K' or 'k', {}
end

-- Redis does not roll a script back: a key of another type must be found before the first effect. What this call cannot touch
-- is left out, and so is the one stream of a single message: adding to it is the first effect.
local target = choose_stream(undelivered, ARGV[first_message])
if count > 1 or has_options or undelivered[target] == 0 then redis.call('ZCARD', q.ready) end
if progress and is_fading(q, progress) then redis.call('ZCARD', progress.index) end
local is_awaited = q.waiting_until > q.now
if is_awaited then redis.call('XLEN', q.notifications) end
if has_options or is_fair then redis.call('XLEN', q.bodies) end
if is_fair then redis.call('ZCARD', q.overflow) end
if count > 1 or has_options then
  --- @use keys
  local streams = {}
  for i = 1, count > 1 and q.declared or 0 do streams[i] = KEYS[first_stream + i] end
  check_types({}, {}, streams)
  if has_options then check_types({q.attempts, q.shard_keys}, {q.dedup_index, q.delayed, q.due}, {}) end
end

-- Each message goes into the stores of those that are delayed or held back, or into the shortest stream of its shard.
--- @use window, overflow, unique
local keys, values = KEYS, ARGV -- a local is found faster than a global
local places, first, gained, delayed, held_keys, held_shards, ids = {}, {}, {}, {}, {}, {}, {}
local prefix, mark = q.prefix, q.mark
for i = 1, count do
  local at = first_message + (i - 1) * stride
  local shard, shard_key, tag, payload = values[at], values[at + 1], values[at + 2], values[at + 3]
  local delay, attributes, dedup_key, unique_key, headers, place = 0, '', '', '', '', nil
  if has_options then
    headers = values[at + 4]
    local option = options[i]
    if option then
      delay, attributes, dedup_key, unique_key = option.delay, option.attributes, option.dedup_key, option.unique_key
      if keyed > 0 then place = find_standing(q, option, ids) end
    end
  end
  if not place then
    n = n + 1
    local id = prefix .. n
    if delay > 0 or unique_key ~= '' then
      append_message(q, bodies, id, shard_key, tag, payload, attributes, headers)
      if unique_key ~= '' then
        ids[i] = id .. '-d'
        save_unique(q, unique_key, id, ids[i])
      end
      place, delayed[#delayed + 1] = 'd', {id = id, shard = shard, shard_key = shard_key, delay = delay}
    elseif counts and is_held_back(q, shard_key) then
      append_message(q, bodies, id, shard_key, tag, payload, attributes, headers)
      if hold_message(q, string.sub(id, #prefix + 1), shard_key) then
        held_keys[#held_keys + 1], held_shards[#held_shards + 1] = shard_key, shard
      end
      place = 'd'
    else
      local to = choose_stream(undelivered, shard)
      if has_options then
        append_message(q, keys[first_stream + to], id, shard_key, tag, payload, attributes, headers)
      else
        redis.call('XADD', keys[first_stream + to], id, mark, shard_key, tag, payload)
      end
      if undelivered[to] == 0 then first[to] = n end
      undelivered[to], gained[to] = undelivered[to] + 1, true
      place = numbers[to]
      if is_awaited then notify_reader(q, place) end
    end
    if dedup_key ~= '' then save_dedup_key(q, dedup_key, id .. '-' .. place) end
  end
  places[i] = place
end

save_gains(q, gained, first)
redis.call('HSET', q.meta, 'n', n, 'ms', ms)
if #delayed > 0 then
  --- @use delays
  delay_all(q, delayed, counts)
end
if is_fair then
  --- @use shards, overflow, accounts
  for at, shard in ipairs(held_shards) do held_shards[at] = spell_shard(q, shard) end
  save_held(q, held_keys, held_shards)
  save_accounts(q)
end

if q.journal_size > 0 then
  --- @use journal
  local shard_keys = {}
  for i = 1, count do shard_keys[i] = ARGV[first_message + (i - 1) * stride + 1] end
  append_new(q, string.format('%.0f|%.0f|', ms, before), places, shard_keys, has_options and options)
end

local stored = string.format('%.0f|%.0f|%s', ms, before, table.concat(places, ','))
if progress then save_progress(q, progress, stored) end
return {'OK', stored}
