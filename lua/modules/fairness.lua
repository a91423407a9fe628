-- Fairness of reads: a message that leaves the streams makes room for the next one of its shard key, which is admitted out of
-- the overflow when a round ends. What a batch wants beyond the streams comes straight out of overflows.
--- @use accounts, bodies, deliveries, journal, keys, messages, offset, overflow, redelivery, schedule, walks, window

-- Begins a read of a fair queue.
local function begin_fair_read(q)
  prepare_admission(q)
  load_sum(q, redis.call('HGET', q.accounts, 'sum'))
  local written, walks = unpack(redis.call('HMGET', q.meta, 'n', 'walk')) -- at most 2: the fields
  q.positions_from, q.walks_left, q.walked = tonumber(written), tonumber(walks or '0'), 0
  q.left, q.lease_scores, q.lease_dues, q.turns = {shard_keys = {}, delivered = {}, streams = {}}, {}, {}, {}
  q.has_turns = q.has_weights and q.window > 0
end

-- Sets the bounds of a read. What one of many messages takes grows with the accounts that it comes across, most of all where these
-- hold something back: then it takes back and delivers less, so that nobody waits for a long script. Where there are more rules
-- than the window each account takes longer, and longest where it may have limits.
local function bound_fair_read(q)
  local is_flooded = q.held > 0 and q.active > 50
  q.most_due = is_flooded and 25 or 34
  if is_flooded then q.count = math.min(q.count, q.has_limits and 25 or q.has_more and 34 or 64) end
end

-- Counts a turn of an account with a weight: a turn begins with all that the weight gives, less this message. Whose turn has
-- begun is listed in `q.turns`, each once.
local function count_turn(q, account)
  local turns = q.turns
  account.due = account.due > 0 and account.due - 1 or account.weight - 1
  if not turns[account] then turns[#turns + 1], turns[account] = account, true end
end

-- Counts in an account that a message has left a stream, if it came out of one, and that it was delivered, if it was.
local function count_departure(q, account, is_delivered, number)
  if number then
    count_messages(q, account, -1, 0)
    account.stream = number
  end
  if is_delivered and q.counts_flight then account.flight = account.flight + 1 end
  if is_delivered and q.has_limits then q.spend_token(q, account) end
  if is_delivered and number and q.has_turns and account.weight > 1 then count_turn(q, account) end
end

-- Counts in the accounts what has left the streams, or was delivered straight out of an overflow, since the last time.
local function count_left(q)
  local shard_keys, delivered, streams = q.left.shard_keys, q.left.delivered, q.left.streams
  if #shard_keys == 0 then return end
  load_accounts(q, shard_keys)
  local plain, behind, streams_left = q.plain, q.behind, q.streams_left
  for at, shard_key in ipairs(shard_keys) do
    local shared, stream = plain[shard_key], streams[at]
    if not shared then
      count_departure(q, find_account(q, shard_key), delivered[at], stream)
    elseif stream and shared > 0 then
      plain[shard_key] = shared - 1
      if behind[shard_key] then
        streams_left[shard_key] = stream
      elseif shared == 1 then
        q.active = math.max(0, q.active - 1)
      end
    end
  end
  q.left = {shard_keys = {}, delivered = {}, streams = {}}
end

-- Delivers a message of which nothing is known straight out of an overflow. Those with the same shard share a group of
-- `q.first_time`.
local function deliver_held(q, item, groups)
  local id = item.id
  local entry = q.entries[id] or redis.call('XRANGE', q.bodies, id, id)[1]
  local fields, shard, group, leased = entry and entry[2], item.shard, groups[item.shard], q.leased
  q.examined = q.examined + 1
  if not entry then
    q.gone, q.vanished = q.gone + 1, q.vanished + 1
    if q.events then note_event(q, 'z', id .. '-d', '', 0) end
    return
  elseif #fields > 4 and is_expired(q, fields) then
    return drop_new(q, q.bodies, 'd', id, fields)
  end
  if not group then
    group = {}
    groups[shard], q.first_time[#q.first_time + 1], q.first_time[#q.first_time + 2] = group, 'd:' .. shard, group
  end
  local shard_key, at = fields[2], #leased
  group[#group + 1], q.found = entry, q.found + 1
  leased[at + 1] = q.lease_scores[shard_key] or lease_score(q, shard_key)
  leased[at + 2] = 'd:' .. id .. ':1:' .. q.holder .. ':' .. shard .. ':' .. shard_key
  if q.counts_flight then note_left(q, shard_key, true, nil) end
end

-- Delivers messages straight out of overflows. One that was given back and lies in a stream goes to that stream's redelivery
-- queue instead, since the stream may not be declared.
local function deliver_all_held(q, items)
  local new, known, queued, handles, groups = {}, {}, {}, {}, {}
  save_taken(q)
  for _, item in ipairs(items) do
    if item.place ~= 'd' then
      local account = find_account(q, item.shard_key)
      count_messages(q, account, 1, 0)
      keep_stream(q, account.stream, item)
      account.stream = false
      queued[#queued + 1] = item
    elseif item.is_known then
      known[#known + 1], handles[#handles + 1] = item, item.handle
    else
      new[#new + 1] = item
    end
  end
  enqueue_messages(q, queued)
  q.has_redeliveries = q.has_redeliveries or #queued > 0
  local texts, ids = #known > 0 and read_attempts(q, handles) or {}, {}
  load_bodies(q, handles)
  for _, item in ipairs(new) do ids[item.number] = item.id end
  load_ids(q, ids)
  for at, item in ipairs(known) do deliver_again(q, item.handle, nil, texts[at], item.shard) end
  for _, item in ipairs(new) do deliver_held(q, item, groups) end
end

-- Takes the rest of a batch out of the overflows of the plain accounts that this call has loaded, in even shares. A share is
-- rounded up or down by the clock: always up would favour the accounts that a read loads first.
local function take_even_shares(q, items, rounding)
  local plain, behind, waiting = q.plain, q.behind, {}
  for _, name in ipairs(q.behind_names) do
    if behind[name] and plain[name] < count_places(q, q.active - 1) then waiting[#waiting + 1] = name end
  end
  local left = #waiting
  for _, name in ipairs(waiting) do
    local most = math.floor((q.count - q.found - #items) / left + rounding)
    left = left - 1
    if most > 0 then take_plain(q, name, most, items) end
  end
end

-- Takes the rest of a batch out of the overflows of the other accounts, each its share by weight.
local function take_shares(q)
  local waiting, weights, items, rounding = {}, 0, {}, q.now * 0.6180339887 % 1
  if not q.has_more then take_even_shares(q, items, rounding) end
  for _, account in ipairs(q.loaded) do
    if account.held > 0 and find_room(q, account) > 0 then
      waiting[#waiting + 1], weights = account, weights + account.weight
    end
  end
  for _, account in ipairs(waiting) do
    local most = math.floor((q.count - q.found - #items) * account.weight / weights + rounding)
    most, weights = math.min(most, room_by_limits(q, account)), weights - account.weight
    if most > 0 then take_held(q, account, most, items) end
  end
  return items
end

-- Delivers the rest of a batch straight out of overflows, once the streams are empty. All of a batch leaves at once, so nobody
-- waits behind it, and it need not pass through the redelivery queue. While the streams have something a turn is one message:
-- were it more, which costs less, all who come next would wait longer. Returns whether anything was delivered.
local function deliver_rest(q)
  local before = q.found
  deliver_all_held(q, take_shares(q))
  count_left(q)
  return q.found > before
end

-- Ends a round: counts what left the streams, and admits what has room now. Returns whether it delivered or admitted anything. A
-- read that has found enough takes from no further stream, so it need not look at their types.
local function end_round(q)
  if q.found == q.count then
    if not q.is_checked then check_read_keys(q) end
    count_left(q)
    return false
  end
  check_read_types(q, q.served)
  count_left(q)
  local has_delivered = q.count > 1 and #list_next(q, 1) == 0 and deliver_rest(q)
  local has_admitted = admit_held(q)
  q.has_redeliveries = redis.call('ZCARD', q.redelivery) > 1
  return has_admitted or has_delivered
end

-- Says whether a message that came due may be delivered at once: nothing else of its account is held back, and the cap leaves
-- room beside those that passed before, which `reserved` counts by account.
local function may_pass(q, item, reserved)
  if not item.shard_key then return true end
  local account = find_account(q, item.shard_key)
  local before = reserved[account] or 0
  if account.held > 0 or room_by_limits(q, account) <= before then return false end
  reserved[account] = before + 1
  return true
end

-- Gives back what came due and was not delivered at once.
local function give_back_fairly(q, items)
  count_left(q)
  give_back_messages(q, items)
end

-- Ends a read of a fair queue: goes on with a walk that is asked for, writes down the accounts, and when the buckets of its
-- leases are due.
local function end_fair_read(q)
  count_left(q)
  if q.walks_left > 0 and q.walked == 0 then walk_on(q) end
  close_accounts(q)
  save_due_times(q)
  if #q.lease_dues > 0 then redis.call('ZADD', q.due, 'LT', unpack(q.lease_dues)) end -- at most 2,000: a read
end
