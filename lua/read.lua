#!lua flags=allow-oom
-- read: take back ended leases, let due messages in, then deliver up to `count` messages, from one stream after the other
-- beginning at the shared offset. No stream is left out: one whose key is not declared ends the read, and the hints name it.
-- KEYS[1] meta: epoch, streams, offset, counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[8] bodies: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dead: dead letters
-- KEYS[12] moved: where redriven messages lie now
-- KEYS[13] accounts: what each shard key holds, where the queue is fair
-- KEYS[14] shard_keys: shard keys of what is delayed
-- KEYS[15] overflow: handles that wait for room in the shared streams
-- KEYS[16] journal: what happened to the messages
-- KEYS[17] due: when the buckets of the timed indexes are due
-- KEYS[18..] streams: the declared ones, the legacy stream among them
-- ARGV[1] count: at most so many messages; a queue with a window or a cap may give fewer, and then says 'MORE'
-- ARGV[2] holder: nonce that makes the leases of this call its own
-- ARGV[3] visibility: ms that the leases last
-- ARGV[4] clock: what the caller says of the server's clock (see `read_view`); '' = nothing yet, take back no lease
-- ARGV[5] max_deliveries: more than that is dead, if the queue does not say how many
-- ARGV[6] max_dead: dead letters at most, if the queue does not say how many
-- ARGV[7] blocks: ms for which the caller will block if there is nothing, 0 = it will not
-- ARGV[8] width: how many hints to return
-- ARGV[9] prefer: stream to try first, '' for none
-- ARGV[10] legacy_group: of the legacy stream, '' for none
-- ARGV[11] client: what the journal calls the caller
-- ARGV[12..] numbers: of the declared streams, 'l' for the legacy stream
-- Reply: {'OK' | 'MISS': a stream was not declared, there may be more | 'MORE': there may be more | 'VOID' | 'NOQUEUE', now, epoch, ms to the next deadline or due time (-1: none, or there is a message or may be more), hints "3,17",
--         {place or "d:streams", {{id, {field, value, ...}}, ...}, place, ...} delivered for the first time,
--         {{"place:id:count" or "place:id:count:streams", error, {field, ...}, deliverable since ('' or ms)}, ...} delivered before}
--- @use schedule, streams, redelivery
local meta, lens, ready, notifications, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local redelivery, bodies, attempts, accounts, overflow, due = KEYS[7], KEYS[8], KEYS[9], KEYS[13], KEYS[15], KEYS[17]
local count, holder, visibility, view, blocks, width = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[7]), tonumber(ARGV[8])
local prefer, legacy_group, client = ARGV[9], ARGV[10], ARGV[11]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch, offset, owed, journal_size, void, fair, cap, parents, weighted, walk = unpack( -- at most 10: the fields
  redis.call('HMGET', meta, 'epoch', 'offset', 'owed', 'journal', 'void', 'fair', 'max_in_flight', 'parents', 'weighted', 'walk'))
if not epoch then return {'NOQUEUE'} end

-- What comes back into the queue by time: leases that ended, and delayed messages that are due.
local is_fair = fair == '1'
local has_ended = redis.call('ZCOUNT', leases, '-inf', now) > 0 or string.find(view, 'j', 1, true)
local has_due = redis.call('ZCOUNT', delayed, '-inf', now) > 0
local due_buckets = is_fair and redis.call('ZCOUNT', due, '-inf', now) or 0
local has_due_buckets = due_buckets > 0
local has_redeliveries = redis.call('ZCARD', redelivery) > 1

--- @straight
-- The common case: nothing came back but one by one, the reader is no special one, there is no journal, and where the queue is fair
-- no rule but the window.
if not (has_ended or has_due or has_due_buckets or has_redeliveries and not (is_fair and count == 1) or void)
  and owed == '0' and prefer == '' and legacy_group == '' and (journal_size or '0') == '0'
  and (weighted or '0') == '0' and not (is_fair and ((cap or '0') ~= '0' or parents == '1' or walk))
then
  -- The ready streams from the offset on, then those before it; after the first as many as the caller wants to be told.
  local most_turns = math.max(count, 1 + width)
  local turns = redis.call('ZRANGEBYSCORE', ready, offset, '+inf', 'LIMIT', 0, most_turns)
  if #turns < most_turns and offset ~= '0' then
    for _, turn in ipairs(redis.call('ZRANGEBYSCORE', ready, 0, '(' .. offset, 'LIMIT', 0, most_turns - #turns)) do
      turns[#turns + 1] = turn
    end
  end
  local turn = turns[1]
  if not turn and not has_redeliveries and not (is_fair and (redis.call('ZCARD', overflow) > 1 or redis.call('ZCARD', due) > 1)) then
    -- Nothing is there. What notifications announced was taken, so they count as seen; and the caller may block for a while.
    if not redis.pcall('XGROUP', 'SETID', notifications, 'shardq', '$').err then
      if redis.call('XLEN', notifications) > 0 then redis.call('XTRIM', notifications, 'MAXLEN', 0) end
      local until_when = now + 2 * blocks
      if blocks > 0 and tonumber(redis.call('HGET', meta, 'waiting')) < until_when then
        redis.call('HSET', meta, 'waiting', until_when)
      end
      -- The reply says when the next lease ends, or the next message is due.
      local ends = redis.call('ZRANGEBYSCORE', leases, '-inf', '(' .. SPAN, 'WITHSCORES', 'LIMIT', 0, 1)[2] or SPAN
      local comes = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(' .. SPAN, 'WITHSCORES', 'LIMIT', 0, 1)[2] or SPAN
      local soonest = math.min(ends, comes)
      return {'OK', now, epoch, soonest < SPAN and math.ceil(soonest - now) or -1, '', {}, {}}
    end
  elseif turn and turn ~= LEGACY and count == 1 and visibility >= 5000 then
    -- One message of the first of them, if it is declared. The stream counts as many entries as it has beyond its cursor.
    local key, entries = nil, nil
    for i = 12, #ARGV do
      if ARGV[i] == turn then key = KEYS[i + 6] break end
    end
    if not key and width > 0 then
      return {'MISS', now, epoch, -1, table.concat(turns, ',', 1, math.min(width, #turns)), {}, {}}
    end
    local left, cursor = unpack(redis.call('HMGET', lens, turn, 'h' .. turn)) -- at most 2: the fields
    left = tonumber(left or '0')
    if key and left > 0 and not has_redeliveries then
      entries = redis.call('XRANGE', key, '(' .. (cursor or '0-0'), '+', 'COUNT', left > 1 and 1 or 2)
    end
    local id, fields, field, behind, shared, active, held = nil, {}, nil, '0', nil, nil, nil
    if entries and #entries == 1 then id, fields = entries[1][1], entries[1][2] end
    local shard_key = fields[1] == 'K' and fields[2]
    if is_fair and shard_key then
      field = 't:' .. shard_key
      local sum, account = unpack(redis.call('HMGET', accounts, 'sum', field)) -- at most 2: the fields
      active, held = string.match(sum or '', '^(%d+) (%d+)$')
      shared, behind = string.match(account or '', '^([1-9]%d*) (%d+)$')
    end
    if id and fields[5] ~= 'm' and behind == '0' and (active or not field) then -- an attribute may be the message's own deadline
      local token, ends = turn .. ':' .. id .. ':1:' .. holder, now + visibility
      if shard_key then token = token .. '::' .. shard_key end
      if field then
        -- The lease lies in the bucket of its shard key, which is due when it ends, if not before.
        local bucket = tonumber(string.sub(redis.sha1hex(shard_key), 1, 8), 16) % 2045 + 1
        redis.call('ZADD', due, 'LT', ends, 'l' .. bucket)
        ends = bucket * SPAN + ends
        -- The shard key has one message less in the streams. With the last one its account goes.
        if shared == '1' then
          redis.call('HDEL', accounts, field)
          redis.call('HSET', accounts, 'sum', math.max(0, active - 1) .. ' ' .. held)
        else
          redis.call('HSET', accounts, field, shared - 1 .. ' 0')
        end
      end
      redis.call('ZADD', leases, ends, token)
      redis.call('HSET', lens, turn, left - 1, 'h' .. turn, id)
      redis.call('HSET', meta, 'offset', (turn + 1) % 4097)
      if left == 1 then redis.call('ZREM', ready, turn) else turns[#turns + 1] = turn end
      return {'OK', now, epoch, -1, width > 0 and table.concat(turns, ',', 2) or '', {turn, entries}, {}}
    elseif key and is_fair and (has_redeliveries or behind and behind ~= '0') then
      --- @use admission
      local read = {
        meta = meta, lens = lens, ready = ready, leases = leases, redelivery = redelivery, bodies = bodies, attempts = attempts,
        accounts = accounts, overflow = overflow, due = due, key = key, turn = turn, left = left, cursor = cursor, now = now,
        ends = now + visibility, holder = holder, has_redeliveries = has_redeliveries,
      }
      local first_time, again = read_beside_overflow(read)
      if first_time then
        if read.left > 0 then turns[#turns + 1] = turn end
        return {'OK', now, epoch, -1, width > 0 and table.concat(turns, ',', 2) or '', first_time, again}
      end
    end
  elseif turn and turn ~= LEGACY and count > 1 and visibility >= 5000 and not has_redeliveries then
    -- Many messages, out of no more streams than that. All of these must be declared.
    local keys, lens_fields, lengths, cursors = {}, {}, {}, {}
    for i = 12, #ARGV do keys[ARGV[i]] = KEYS[i + 6] end
    if not keys[turn] and width > 0 then
      return {'MISS', now, epoch, -1, table.concat(turns, ',', 1, math.min(math.max(width, 4), #turns)), {}, {}}
    end
    for at = #turns, count + 1, -1 do turns[at] = nil end
    for at, number in ipairs(turns) do lens_fields[2 * at - 1], lens_fields[2 * at] = number, 'h' .. number end
    local stored, is_common = redis.call('HMGET', lens, unpack(lens_fields)), true -- at most 2,000: two for each message
    for at, number in ipairs(turns) do
      lengths[number], cursors[number] = tonumber(stored[2 * at - 1] or '0'), stored[2 * at] or '0-0'
      is_common = is_common and keys[number] and number ~= LEGACY and lengths[number] > 0
    end

    -- In rounds, of one stream after the other its share of what is still wanted. Each has as many as it counts. With a window: of
    -- which shard keys they are, how many of each, and in which bucket its leases lie. Nothing is changed before all is looked at.
    local first_time, leased, dues, found, left, last = {}, {}, {}, 0, turns, nil
    local rest, ends, names, fields_of, number_of, scores = ':1:' .. holder, now + visibility, {}, {'sum'}, {}, {}
    while is_common and found < count and #left > 0 do
      local share, over, stay = math.floor((count - found) / #left), (count - found) % #left, {}
      for i, number in ipairs(left) do
        if found == count then break end
        local length, most = lengths[number], math.max(1, math.min(500, i <= over and share + 1 or share, count - found))
        local entries = redis.call('XRANGE', keys[number], '(' .. cursors[number], '+', 'COUNT', length > most and most or most + 1)
        is_common = is_common and #entries == math.min(length, most)
        for _, entry in ipairs(entries) do
          local id, fields = entry[1], entry[2]
          local shard_key, score, token, at = fields[1] == 'K' and fields[2], ends, number .. ':' .. id .. rest, #leased
          is_common = is_common and fields[5] ~= 'm' -- an attribute may be the message's own deadline
          if shard_key then token = token .. '::' .. shard_key end
          if shard_key and is_fair then
            score = scores[shard_key]
            if not score then
              local bucket, nth = 1 + tonumber(string.sub(redis.sha1hex(shard_key), 1, 8), 16) % 2045, #names + 1
              score = bucket * SPAN + ends
              scores[shard_key], number_of[shard_key], names[nth], fields_of[nth + 1] = score, 0, shard_key, 't:' .. shard_key
              dues[2 * nth - 1], dues[2 * nth] = ends, 'l' .. bucket
            end
            number_of[shard_key] = number_of[shard_key] + 1
          end
          leased[at + 1], leased[at + 2] = score, token
          cursors[number] = id
        end
        first_time[#first_time + 1], first_time[#first_time + 2] = number, entries
        found, lengths[number], last = found + #entries, length - #entries, number
        if lengths[number] > 0 then stay[#stay + 1] = number end
      end
      left = stay
    end

    -- The shard keys have that many messages less in the streams. With the last one an account goes. Where anything is held back,
    -- the overflows may have to fill up what is wanted, and a call for many does less.
    local changed, gone, sum = {}, {}, nil
    if is_common and is_fair then
      local texts = redis.call('HMGET', accounts, unpack(fields_of)) -- at most 1,001: one for each message, and the sum
      local active, held = string.match(texts[1] or '0 0', '^(%d+) (%d+)$')
      is_common = active and (held == '0' or found == count and (count <= 64 or tonumber(active) <= 50))
      for nth, shard_key in ipairs(names) do
        local shared = string.match(texts[nth + 1] or '', '^(%d+) 0$')
        local remaining = tonumber(shared or '0') - number_of[shard_key]
        is_common = is_common and remaining >= 0
        if remaining > 0 then
          changed[#changed + 1], changed[#changed + 2] = fields_of[nth + 1], remaining .. ' 0'
        else
          gone[#gone + 1] = fields_of[nth + 1]
        end
      end
      if #gone > 0 and is_common then sum = math.max(0, active - #gone) .. ' ' .. held end
    end
    if is_common then
      if sum then changed[#changed + 1], changed[#changed + 2] = 'sum', sum end
      if #dues > 0 then redis.call('ZADD', due, 'LT', unpack(dues)) end -- at most 2,000: two for each message
      if #changed > 0 then redis.call('HSET', accounts, unpack(changed)) end -- at most 2,002: two for each message, and the sum
      if #gone > 0 then redis.call('HDEL', accounts, unpack(gone)) end -- at most 1,000: one for each message
      redis.call('ZADD', leases, unpack(leased)) -- at most 2,000: two for each message
      local emptied, next_offset = {}, (last + 1) % 4097
      for at, number in ipairs(turns) do
        local length, from = lengths[number], 4 * at - 3
        lens_fields[from], lens_fields[from + 1], lens_fields[from + 2], lens_fields[from + 3] = number, length, 'h' .. number, cursors[number]
        if length == 0 then emptied[#emptied + 1] = number end
      end
      redis.call('HSET', lens, unpack(lens_fields)) -- at most 4,000: four for each message
      if #emptied > 0 then redis.call('ZREM', ready, unpack(emptied)) end -- at most 1,000: one for each message
      redis.call('HSET', meta, 'offset', next_offset)

      -- The reply says which streams come next.
      local hints, most_hints = {}, math.max(width, 4)
      if width > 0 then
        hints = redis.call('ZRANGEBYSCORE', ready, next_offset, '+inf', 'LIMIT', 0, most_hints)
        for _, number in ipairs(redis.call('ZRANGEBYSCORE', ready, 0, '(' .. next_offset, 'LIMIT', 0, most_hints - #hints)) do
          hints[#hints + 1] = number
        end
      end
      return {'OK', now, epoch, -1, table.concat(hints, ','), first_time, {}}
    end
  end
end

--- @general
--- @use offset, deliveries
local streams, waiting, jump = unpack(redis.call('HMGET', meta, 'streams', 'waiting', 'jump')) -- at most 3: the fields
local q = {
  meta = meta, lens = lens, ready = ready, notifications = notifications, leases = leases, delayed = delayed,
  redelivery = redelivery, bodies = bodies, attempts = attempts, cancelled = KEYS[10], dead = KEYS[11], moved = KEYS[12],
  accounts = accounts, shard_keys = KEYS[14], overflow = overflow, journal = KEYS[16], due = due, streams = {},
  now = now, visibility = visibility, ends = string.format('%.0f', now + visibility), holder = holder,
  count = count, most_due = 64, width = width, known_max_deliveries = ARGV[5], known_max_dead = ARGV[6],
  legacy_group = legacy_group, is_legacy_done = legacy_group == '', stream_count = tonumber(streams), offset = tonumber(offset),
  owed = tonumber(owed), waiting_until = tonumber(waiting), is_fair = is_fair, journal_size = tonumber(journal_size or '0'),
  lengths = {}, cursors = {}, stored_lengths = {}, stored_cursors = {}, spare = {}, first_time = {}, again = {}, leased = {}, has_redeliveries = has_redeliveries,
  has_due_buckets = has_due_buckets, due_times = {}, buckets = {}, stream_lists = {}, status = 'OK', found = 0, examined = 0,
  gone = 0, expired = 0, vanished = 0, adopted = 0,
}
for i = 12, #ARGV do q.streams[ARGV[i]] = KEYS[i + 6] end
q.streams[LEGACY] = q.streams['l']

-- The caller may have given up on this read while it was under way. `recover` gave back then what the read was granted, and noted
-- it as "until when|holder,holder,...". Such a read delivers nothing, since nobody would know of it. What is over is forgotten.
if void then
  if string.find(void, q.holder, 1, true) then return {'VOID', q.now, epoch, -1, '', {}, {}} end
  if tonumber(string.match(void, '^%d+')) < q.now then redis.call('HDEL', q.meta, 'void') end
end
local count_total
if string.find(weighted or '', '+', 1, true) then
  --- @use queue_limits
  local wait = begin_total(q, jump, blocks)
  if wait then return {'OK', q.now, epoch, wait, '', {}, {}} end
  count_total = q.total and save_total
end
if q.journal_size > 0 then
  --- @use journal
  begin_events(q)
end
if q.is_fair then
  --- @use fairness
  begin_fair_read(q)
  if q.has_mark then
    --- @use limits, withholding
    begin_limits(q)
    begin_looks(q)
    if q.has_limits then begin_withholding(q) end
  end
  bound_fair_read(q)
  q.may_pass, q.give_back = may_pass, give_back_fairly
end

-- Ended leases and due messages come back: into the queue, or once the streams give nothing more to this call, if it wants many.
-- A jump of the clock changes which leases have ended.
local has_anything_due, steps = has_ended or has_due or q.has_due_buckets, {take = take_new_of}
if has_anything_due then
  --- @use keys, time, due
  check_read_types(q, nil)
  redis.call('ZCARD', q.due)
  q.has_ended, q.has_due, q.any_cancelled = has_ended, has_due, redis.call('SCARD', q.cancelled) > 1
  if (has_ended or q.has_due_buckets) and view ~= '' then
    local clock = read_view(view)
    q.jump, q.ended_until = update_jump(q, clock, jump or ''), end_of_leases(q, clock)
  end
  steps.deliver_due = begin_due(q, due_buckets) and deliver_due
end

-- A plain read takes new messages only. Another one looks into the redelivery queue, or at the legacy stream; and in a fair queue,
-- a message that leaves makes room for another one.
if prefer ~= '' or has_anything_due or q.has_redeliveries or q.is_fair or not q.is_legacy_done then
  --- @use offset, redelivery, deliveries
  q.taken, q.taken_from, q.removed, q.queues, q.entries = {}, {}, {}, {}, {}
  steps.take, steps.read_ahead, steps.deliver = take_any_of, read_queues_of, deliver_taken
  if q.is_fair then
    --- @use fairness
    steps.end_round, steps.finish = end_round, end_fair_read
    if q.has_turns then
      --- @use turns
      steps.take, steps.stays = take_turn, stays_for_turns
    end
  end
  if prefer ~= '' then take_preferred(q, prefer) end
end

-- Messages are taken until there are enough or no more, or until a stream is not declared.
local has_more
repeat
  local numbers = list_next(q, q.count == 1 and 1 + q.width or q.count - q.found)
  if q.count > 1 then load_streams(q, numbers) end
  if steps.read_ahead then steps.read_ahead(q, numbers, q.count - q.found) end
  take_round(q, numbers, steps.take, steps.stays)
  if steps.deliver then steps.deliver(q) end
  has_more = #numbers > 0
  if steps.end_round and q.status == 'OK' then has_more = steps.end_round(q) or has_more end
  local is_over = q.found == q.count or not has_more
  if is_over and steps.deliver_due and q.status ~= 'MISS' then
    has_more, steps.deliver_due = steps.deliver_due(q), nil
    is_over = not has_more
  end
  if is_over and q.is_fair and q.found == 0 and q.status == 'OK' then
    --- @use walks
    has_more = search_overflow(q)
    q.has_redeliveries = has_more
  end
until q.status ~= 'OK' or q.found == q.count or not has_more

-- All that was due may have expired or died, and what is due behind it may be for delivery: then the caller reads again.
if q.found == 0 and q.has_more_due and q.status == 'OK' then q.status = 'MORE' end

-- What happened is written down.
local wait = -1
if q.found == 0 and q.status == 'OK' then
  --- @use notifications, schedule
  clear_notifications(q, blocks)
  wait = ms_to_next_event(q)
end
if steps.finish then steps.finish(q) end
if count_total then count_total(q) end
save_leases(q)
save_streams(q)
if q.gone ~= 0 or q.adopted ~= 0 then
  --- @use deliveries
  save_counters(q)
end
if q.events then
  --- @use deliveries, journal
  note_deliveries(q)
  save_events(q, client)
end
if q.owed ~= tonumber(owed) then redis.call('HSET', q.meta, 'owed', q.owed) end
if q.offset ~= tonumber(offset) then redis.call('HSET', q.meta, 'offset', q.offset) end
local hints = name_hints(q)
if q.found > 0 then q.status = (q.has_more_due or q.found == q.count and q.count < count) and 'MORE' or 'OK' end
return {q.status, q.now, epoch, wait, hints, q.first_time, q.again}
