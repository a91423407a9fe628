-- Removing messages for good that nobody has in flight, as many as one call may: `q.most`. `q.keys` has the declared streams by
-- number. `q.purged` counts what was removed, `q.vanished` what others deleted before.
--- @use accounts, children, messages, overflow, redelivery, streams

-- Counts that a message has left the shared streams.
local function count_removed(q, fields)
  if q.is_fair and fields[1] == 'K' then count_messages(q, find_account(q, fields[2]), -1, 0) end
end

-- Removes a message with all that is known of it. It may be in the shared streams, delayed or held back.
local function remove_message(q, handle, is_in_stream)
  local place, id = split_handle(handle)
  local body = redis.call('XRANGE', q.keys[place], id, id)[1]
  if body and is_in_stream then count_removed(q, body[2]) end
  if q.events then note_message(q, 'g', place, id, body and body[2] or {}, 0) end
  forget_body(q, q.keys[place], id, handle, body)
  q.purged = q.purged + 1
end

-- Removes messages from the redelivery queue of a stream. Returns how many.
local function remove_returned(q, number)
  local first = number * POSITIONS
  local handles = redis.call('ZRANGEBYSCORE', q.redelivery, first, first + POSITIONS - 1, 'LIMIT', 0, q.most - q.purged)
  for _, handle in ipairs(handles) do
    redis.call('ZREM', q.redelivery, handle)
    remove_message(q, handle, true)
  end
  return #handles
end

-- Removes messages of a stream that were never delivered: nothing is known of them beside their entries. Returns how many.
local function remove_new(q, number)
  local key, cursor, ids = q.keys[number], redis.call('HGET', q.lens, 'h' .. number) or '0-0', {}
  local entries = redis.call('XRANGE', key, '(' .. cursor, '+', 'COUNT', q.most - q.purged)
  for at, entry in ipairs(entries) do
    ids[at] = entry[1]
    count_removed(q, entry[2])
    if q.events then note_message(q, 'g', number, entry[1], entry[2], 0) end
  end
  if #ids > 0 then
    redis.call('XDEL', key, unpack(ids)) -- at most 250: a chunk
    redis.call('HSET', q.lens, 'h' .. number, ids[#ids])
  end
  q.purged = q.purged + #ids
  return #ids
end

-- Removes what a stream has undelivered. When all is removed, its count may say something else, since others put entries there or
-- deleted some; then the count is corrected.
local function purge_stream(q, number)
  local removed = remove_returned(q, number)
  if number ~= LEGACY and q.purged < q.most then removed = removed + remove_new(q, number) end
  local left = redis.call('HGET', q.lens, number) - removed
  local undelivered = q.purged < q.most and 0 or math.max(1, left)
  if undelivered == 0 then redis.call('ZREM', q.ready, number) end
  redis.call('HSET', q.lens, number, undelivered)
  q.vanished = q.vanished + left - undelivered
end

-- Removes delayed messages.
local function purge_delayed(q)
  local handles = redis.call('ZRANGEBYSCORE', q.delayed, '-inf', '(9000000000000000', 'LIMIT', 0, q.most - q.purged)
  for _, handle in ipairs(handles) do
    if q.keys[split_handle(handle)] then
      redis.call('ZREM', q.delayed, handle)
      if q.is_fair then forget_delayed(q, handle) end
      remove_message(q, handle, false)
    end
  end
end

-- Removes what is held back in overflows, of one shard key after the other.
local function purge_overflow(q)
  while q.purged < q.most do
    local shard_key, items = next_run(q, FIRST_RUN), {}
    if not shard_key then break end
    take_from_run(q, shard_key, q.most - q.purged, items)
    save_taken(q)
    local account = find_account(q, shard_key)
    count_messages(q, account, 0, -math.min(account.held, #items))
    if q.has_parents then count_child(q, account, shard_key, -#items, 0) end
    for _, item in ipairs(items) do remove_message(q, item.handle, false) end
  end
end
