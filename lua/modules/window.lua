-- The admission window: how many undelivered messages each shard key may have in the shared streams. Messages that the window
-- holds back are admitted, out of the overflow and into the redelivery queue, when their shard keys have room.
--- @use accounts, overflow, redelivery
local MOST_ADMITTED = 100

-- Asks the reads that come to look at every shard key that has something in its overflow. After a change of rules such a
-- shard key may have room, and nobody would look at it if all of its messages are in the overflow or in flight.
local function request_walk(q)
  redis.call('HSET', q.meta, 'walk', redis.call('HEXISTS', q.meta, 'walk') + 1)
end

-- Returns how many more of an account may be delivered or undelivered in the streams under the limits of the queue and its own.
local function room_by_limits(q, account)
  if q.has_limits then return q.find_allowance(q, account) - account.shared end
  return q.cap > 0 and q.cap * account.weight - account.flight - account.shared or 9e15
end

-- Returns how many messages an account may have in the shared streams beside so many other active ones. While n accounts are
-- active and n is less than eight, the window is wider: each has 8 / n places, rounded down (more would be unfair to whom
-- comes next: docs/fairness.md).
local function count_places(q, others)
  return others < 8 and math.max(q.window, math.floor(8 / (others + 1))) or q.window
end

-- Returns how many more of an account may be in the shared streams. Where there are weights each has one place: a share is
-- then the number of messages that leave in its turn.
local function find_room(q, account)
  if q.window == 0 then return room_by_limits(q, account) end
  local others = account.shared + account.held > 0 and q.active - 1 or q.active
  local room = (q.has_weights and 1 or count_places(q, others)) - account.shared
  return q.counts_flight and math.min(room, room_by_limits(q, account)) or room
end

-- Counts a new message in the account of its shard key. Returns true if it has to wait in the account's overflow, false if it
-- may go into a stream.
local function is_held_back(q, shard_key)
  local shared, active, behind = q.plain[shard_key], q.active, q.behind
  if shared then
    local held = behind[shard_key]
    local is_held = held or shared >= count_places(q, shared > 0 and active - 1 or active)
    if is_held then
      behind[shard_key], q.held = (held or 0) + 1, q.held + 1
    else
      q.plain[shard_key] = shared + 1
      if shared == 0 then q.active = active + 1 end
    end
    return is_held
  end
  local account = not q.has_parents and q.account_by[shard_key] or find_account(q, shard_key)
  if account.held == 0 and find_room(q, account) > 0 then
    count_messages(q, account, 1, 0)
    return false
  end
  count_messages(q, account, 0, 1)
  return true
end

-- Lists the messages of a call that would be more than their shard key may have undelivered, by their index. Those that
-- repeat an earlier message take no room.
local function list_beyond_backlog(q, shard_keys, repeated)
  local beyond, backlog = {}, {}
  for i = 1, q.max_backlog > 0 and #shard_keys or 0 do
    local account = find_account(q, shard_keys[i])
    if not repeated[i] then
      backlog[account] = (backlog[account] or account.shared + account.held + account.delayed) + 1
      if backlog[account] > q.max_backlog then beyond[#beyond + 1] = i end
    end
  end
  return beyond
end

-- Notes of a message that is admitted the stream that it stays in: where its shard key was handed a message out of a stream
-- that is empty now, the next one goes there, since that stream is as short as any.
local function keep_stream(q, stream, item)
  if stream and item.place == 'd' and q.lengths[stream] == 0
    and string.find(',' .. item.shard .. ',', ',' .. stream .. ',', 1, true)
  then
    item.stream = stream
  end
end

-- Admits messages of the accounts that are plain, each as many as it has room for and `most` at most. Those that are to be
-- enqueued yet are appended to `admitted`. Returns how many were enqueued.
local function admit_plain(q, most, admitted)
  local plain, behind, streams, before = q.plain, q.behind, q.streams_left, q.positions_taken
  for _, name in ipairs(q.behind_names) do
    local held, stream = behind[name], streams[name]
    local room = held and math.min(count_places(q, q.active - 1) - plain[name], held, most) or 0
    local handle, shard = nil, nil
    if room == 1 then handle, shard = take_next(q, name) end
    if not handle and room > 0 then
      local first = #admitted + 1
      take_plain(q, name, room, admitted, true)
      if admitted[first] then keep_stream(q, stream, admitted[first]) end
    elseif handle and not enqueue_admitted(q, handle, shard, stream) then
      admitted[#admitted + 1] = {handle = handle, place = 'd', shard = shard}
    end
    streams[name] = nil
  end
  save_enqueued(q)
  return q.positions_taken - before
end

-- Admits messages of all accounts that this call has loaded, as many as they have room for. Where there are few accounts, all
-- together get MOST_ADMITTED at most, else one each. Who had room has something in the streams then, and is looked at again
-- when that leaves; so nobody is left behind by the bound. Returns whether any was admitted.
local function admit_held(q)
  local admitted, accounts = {}, math.max(1, #q.loaded + #q.behind_names)
  local most = math.max(1, math.floor(MOST_ADMITTED / accounts))
  for _, account in ipairs(q.loaded) do
    local room = account.held > 0 and math.min(find_room(q, account), account.held, most) or 0
    if room > 0 then
      local before = #admitted
      take_held(q, account, room, admitted, true)
      if admitted[before + 1] then keep_stream(q, account.stream, admitted[before + 1]) end
      account.stream = false
    end
  end
  local enqueued = admit_plain(q, most, admitted)
  save_taken(q)
  enqueue_messages(q, admitted)
  return enqueued + #admitted > 0
end

-- Begins a call that may admit messages: nothing is taken out of the overflow or put into the redelivery queue yet.
local function prepare_admission(q)
  read_rules(q)
  q.gone_members, q.left_members, q.added_members, q.stream_lists, q.positions_taken = {}, {}, {}, {}, 0
  q.streams_left, q.enqueued, q.woken = {}, {}, {}
end

-- Gives messages back: those whose shard keys have room come into the redelivery queue, the others into the overflow, before
-- what was written after them.
local function give_back_messages(q, items)
  local shard_keys, admitted, held, held_keys = {}, {}, {}, {}
  arrange_messages(items)
  for _, item in ipairs(items) do shard_keys[#shard_keys + 1] = item.shard_key or nil end
  load_accounts(q, shard_keys)
  for _, item in ipairs(items) do
    local shard_key = item.shard_key
    local account = shard_key and (q.account_by[shard_key] or find_account(q, shard_key))
    if not account then
      admitted[#admitted + 1] = item
    elseif find_room(q, account) > 0 then
      count_messages(q, account, 1, 0)
      admitted[#admitted + 1] = item
    else
      local list = held[shard_key] or {}
      if #list == 0 then held[shard_key], held_keys[#held_keys + 1] = list, shard_key end
      list[#list + 1] = item
    end
  end
  for _, shard_key in ipairs(held_keys) do hold_returned(q, shard_key, held[shard_key]) end
  save_added(q)
  enqueue_messages(q, admitted)
end

-- Ends a call that changed accounts: admits what has room now, and writes down what changed.
local function close_accounts(q)
  admit_held(q)
  save_accounts(q)
  save_positions(q)
end
