-- What a read delivers, with a lease for each message. `q.first_time` has the new messages, as {place, {entry, ...}, ...}, and
-- `q.again` those that were delivered before or lay in the store of delayed ones; both become parts of the reply. `q.leased`
-- has what `leases` gets. `q.found` counts the messages, and `q.examined` what was looked at. What a call counts is written
-- down at its end.
--- @use attempts, bodies, dead_letters, journal, messages, notifications, redelivery, schedule

-- Returns the score of a lease of this call, of a message that counts in the admission window. It is made once for each shard key.
-- All leases of a call end at the same time, so `q.lease_dues` has that time for each of their buckets, as `due` gets it.
local function lease_score(q, shard_key)
  local score = q.lease_scores[shard_key]
  if not score then
    local bucket, dues = bucket_of(shard_key), q.lease_dues
    dues[#dues + 1] = q.ends
    dues[#dues + 1] = 'l' .. bucket
    score = bucket * SPAN + q.now + q.visibility -- Redis spells a number faster than Lua, and exactly, as a score
    q.lease_scores[shard_key] = score
  end
  return score
end

-- Notes that a message which counts in the window was delivered, or dropped. The stream is nil if it comes straight out of an
-- overflow. Accounts are changed once, at the end of a round: `count_left`.
local function note_left(q, shard_key, is_delivered, number)
  if q.count_at_once then return q.count_at_once(q, shard_key, is_delivered, number) end
  local left = q.left
  local at = #left.shard_keys + 1
  left.shard_keys[at], left.delivered[at], left.streams[at] = shard_key, is_delivered, number or false
end

-- Drops a new message whose own deadline is over. `key` is the stream where its body lies.
local function drop_new(q, key, place, id, fields)
  redis.call('XDEL', key, id)
  if q.events then note_message(q, 'x', place, id, fields, 0) end
  q.gone, q.expired = q.gone + 1, q.expired + 1
end

-- Delivers the new entries of a stream.
local function deliver_new(q, number, entries)
  local last = entries[#entries]
  if q.withhold_new then entries = q.withhold_new(q, number, entries) end
  local new, leased, is_fair, ends, scores = {}, q.leased, q.is_fair, q.ends, q.lease_scores
  local start, rest, size, at = number .. ':', ':1:' .. q.holder, 0, #leased
  local counted_rest = rest .. '::'
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], entry[2]
    local shard_key = fields[1] == 'K' and fields[2]
    local is_delivered = #fields < 5 or not is_expired(q, fields)
    if is_delivered then
      size = size + 1
      new[size] = entry
      leased[at + 1] = is_fair and shard_key and (scores[shard_key] or lease_score(q, shard_key)) or ends
      leased[at + 2] = shard_key and start .. id .. counted_rest .. shard_key or start .. id .. rest
      at = at + 2
    else
      drop_new(q, q.streams[number], number, id, fields)
    end
    if is_fair and shard_key then note_left(q, shard_key, is_delivered, number) end
  end
  if last then q.cursors[number] = last[1] end
  if size > 0 then q.first_time[#q.first_time + 1], q.first_time[#q.first_time + 2] = number, new end
  q.found = q.found + size
end

-- Corrects the count of a stream that has nothing new any more, or one entry that others wrote: what it still counts must wait in
-- the redelivery queue, and the rest was deleted by others.
local function correct_length(q, number, has_more)
  local left = has_more and 1 or 0
  if q.has_redeliveries then
    remove_taken(q)
    left = left + count_returned(q, number)
  end
  local missing = q.lengths[number] - left
  q.gone, q.vanished, q.lengths[number] = q.gone + missing, q.vanished + missing, left
end

-- Removes those of a stream's entries that come after a position of its redelivery queue.
local function cut_entries(entries, upto)
  local size = #entries
  while size > 0 and tonumber(string.match(entries[size][1], '%-(%d+)$')) > upto do
    entries[size], size = nil, size - 1
  end
end

-- Takes at most so many new messages of a stream, those before the position `upto` if it is given. Where it counts no more than
-- these, one more is asked for: what others put there must not hide what is still to come.
local function take_new(q, number, most, upto)
  local length = q.lengths[number]
  local asked = length <= most and most + 1 or most
  local entries = redis.call('XRANGE', q.streams[number], '(' .. q.cursors[number], '+', 'COUNT', asked)
  local has_more = #entries > most
  if has_more then entries[#entries] = nil end
  local size = #entries
  if upto then cut_entries(entries, upto) end
  if #entries < size then most, has_more = #entries, true end
  q.examined, q.lengths[number] = q.examined + #entries, length - #entries
  deliver_new(q, number, entries)
  if #entries < most or q.lengths[number] < 1 then correct_length(q, number, has_more) end
end

-- Delivers a message that was delivered before, or lay in the store. The client makes the lease token of the row.
local function deliver_row(q, place, id, deliveries, last_error, fields, shard, since)
  local leased, token = q.leased, place .. ':' .. id .. ':' .. deliveries
  local shard_key = place ~= 'l' and fields[1] == 'K' and fields[2]
  q.again[#q.again + 1] = {shard_key and token .. ':' .. shard or token, last_error, fields, since}
  leased[#leased + 1] = q.is_fair and shard_key and lease_score(q, shard_key) or q.ends
  leased[#leased + 1] = token .. ':' .. q.holder .. (shard_key and ':' .. shard .. ':' .. shard_key or '')
  q.found = q.found + 1
end

-- Drops a message that cannot be delivered again: its body is gone, and the entry is nil, or its own deadline is over.
local function drop_returned(q, handle, place, id, key, entry, deliveries)
  if entry then
    q.expired = q.expired + 1
    if q.events then note_message(q, 'x', place, id, entry[2], deliveries) end
  else
    q.vanished = q.vanished + 1
    if q.events then note_event(q, 'z', id .. '-' .. place, '', deliveries) end
  end
  forget_body(q, key, id, handle, entry)
  q.gone = q.gone + 1
end

-- Says whether a message is a dead letter: it was rejected before, when there was no room, or had its last delivery.
local function is_dead_letter(q, deliveries, is_rejected)
  if deliveries == 0 and not is_rejected then return false end
  if not q.max_deliveries then read_limits(q, q.known_max_deliveries, q.known_max_dead) end
  return is_rejected or deliveries >= q.max_deliveries
end

-- Delivers a message again, unless it is gone, expired, or a dead letter. `text` is what is known of it. It comes out of the
-- redelivery queue of a stream, or straight out of an overflow: then `number` is nil, and `shard` says where it may go, should
-- it be given back and nothing be known of it.
local function deliver_again(q, handle, number, text, shard)
  local place, id = split_handle(handle)
  local key = place == 'd' and q.bodies or q.streams[place]
  local entry = q.entries[place == 'd' and id or handle] or redis.call('XRANGE', key, id, id)[1]
  local deliveries, known_shard, last_error, is_rejected, since = parse_attempts(text)
  local fields, before = entry and entry[2], q.found
  q.examined = q.examined + 1
  if not fields or place ~= 'l' and #fields > 4 and is_expired(q, fields) then
    drop_returned(q, handle, place, id, key, entry, deliveries)
  elseif is_dead_letter(q, deliveries, is_rejected) then
    move_to_dead(q, {
      handle = handle, place = place, id = id, deliveries = deliveries, shard = known_shard, last_error = last_error,
      is_rejected = is_rejected,
    }, key, fields, 'b')
  else
    -- The token of a message that counts says where it may go, so an ack of its first delivery needs to know nothing else.
    local is_plain = fields[1] == 'K' and deliveries == 0 and last_error == '' and known_shard ~= ''
    if is_plain then redis.call('HDEL', q.attempts, handle) end
    if place == 'd' and known_shard == '' then known_shard = shard end
    deliver_row(q, place, id, deliveries + 1, last_error, fields, known_shard, since)
  end
  if q.is_fair and fields and fields[1] == 'K' then note_left(q, fields[2], q.found > before, number) end
end

-- Delivers a message that was let in out of an overflow, and of which nothing else is known, like a new one. Those of a stream
-- share a group of `q.first_time`. Returns whether it was one.
local function deliver_admitted(q, handle, number, groups)
  local id = string.byte(handle) == 100 and string.sub(handle, 3) -- 100 is 'd'
  local entry = id and q.entries[id]
  local fields, group, leased = entry and entry[2], groups[number], q.leased
  if not fields or fields[1] ~= 'K' or fields[5] == 'm' then return false end
  if not group then
    group = {}
    groups[number], q.first_time[#q.first_time + 1], q.first_time[#q.first_time + 2] = group, 'd:' .. number, group
  end
  local shard_key, at = fields[2], #leased
  group[#group + 1], q.found, q.examined = entry, q.found + 1, q.examined + 1
  leased[at + 1] = q.lease_scores[shard_key] or lease_score(q, shard_key)
  leased[at + 2] = handle .. ':1:' .. q.holder .. ':' .. number .. ':' .. shard_key
  note_left(q, shard_key, true, number)
  return true
end

-- Reads what is known of messages. Redis is not asked if this call has stored it for all of them.
local function read_attempts(q, handles)
  local texts, stored = {}, q.stored_attempts
  for at, handle in ipairs(stored and handles or {}) do
    if not stored[handle] then break end
    texts[at], stored[handle] = stored[handle], nil
  end
  return #texts == #handles and texts or redis.call('HMGET', q.attempts, unpack(handles)) -- at most 1,000: a read
end

-- Delivers what was taken out of the redelivery queue.
local function deliver_taken(q)
  local handles, from = q.taken, q.taken_from
  if #handles == 0 then return end
  remove_taken(q)
  q.taken, q.taken_from, q.queues, q.found = {}, {}, {}, q.found - #handles
  if q.withhold_taken then handles, from = q.withhold_taken(q, handles, from) end
  if #handles == 0 then return end
  local texts = read_attempts(q, handles)
  if q.count > 1 then load_bodies(q, handles) end
  local groups, is_fair = {}, q.is_fair
  for at, handle in ipairs(handles) do
    local text, number = texts[at], from[at]
    if text or not is_fair or not deliver_admitted(q, handle, number, groups) then
      deliver_again(q, handle, number, text, number)
    end
  end
end

-- Writes down the leases. One that lasts less than 5 s may end before a blocked reader looks again, so a reader is woken.
local function save_leases(q)
  if q.found == 0 then return end
  if q.visibility < SOON then notify_reader(q, '') end
  redis.call('ZADD', q.leases, unpack(q.leased)) -- at most 2,000: a read
end

-- Writes down the lengths and cursors of the streams that this call has loaded, if they changed. One with nothing undelivered
-- is not ready.
local function save_streams(q)
  local fields, emptied, stored_lengths, stored_cursors = {}, {}, q.stored_lengths, q.stored_cursors
  for number, length in pairs(q.lengths) do
    local cursor = q.cursors[number]
    if length ~= stored_lengths[number] then fields[#fields + 1], fields[#fields + 2] = number, length end
    if cursor ~= stored_cursors[number] then fields[#fields + 1], fields[#fields + 2] = 'h' .. number, cursor end
    if length <= 0 then emptied[#emptied + 1] = number end
    if #fields > 3996 then
      redis.call('HSET', q.lens, unpack(fields)) -- at most 4,000
      fields = {}
    end
  end
  if #fields > 0 then redis.call('HSET', q.lens, unpack(fields)) end -- at most 4,000
  if #emptied > 0 then redis.call('ZREM', q.ready, unpack(emptied)) end -- at most 4,097: all streams
end

-- Counts for the queue what left it without a delivery, and what came in from the legacy stream.
local function save_counters(q)
  local counters = {gone = q.gone, expired = q.expired, vanished = q.vanished, adopted = q.adopted}
  for counter, by in pairs(counters) do
    if by ~= 0 then redis.call('HINCRBY', q.meta, counter, by) end
  end
end

-- Notes the delivery of a message in the journal. The attributes have when it was due, if it was delayed.
local function note_delivery(q, place, id, deliveries, fields)
  local due = #fields > 4 and place ~= 'l' and string.match(attributes_of(fields), ' t(%d+)')
  note_message(q, 'd', place, id, fields, deliveries, due)
end

-- Notes all deliveries of this call in the journal.
local function note_deliveries(q)
  for at = 1, #q.first_time, 2 do
    local place = string.match(q.first_time[at], '^%w+')
    for _, entry in ipairs(q.first_time[at + 1]) do note_delivery(q, place, entry[1], '1', entry[2]) end
  end
  for _, row in ipairs(q.again) do
    local place, id, deliveries = string.match(row[1], '^(%w+):([%d-]+):(%d+)')
    note_delivery(q, place, id, deliveries, row[3])
  end
end
