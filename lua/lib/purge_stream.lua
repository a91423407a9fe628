-- Remove what one stream has that was not delivered, or not for good.
local function remove_returned(turn)
  local handles = redis.call('ZRANGEBYSCORE', returned, turn * PLACES, turn * PLACES + PLACES - 1, 'LIMIT', 0, most - removed)
  for _, handle in ipairs(handles) do
    redis.call('ZREM', returned, handle)
    remove(handle, true)
  end
  return #handles
end
-- Of what was never delivered nothing is known beside its entry.
local function remove_new(turn)
  local cursor, ids = redis.call('HGET', lens, 'h' .. turn) or '0-0', {}
  local entries = redis.call('XRANGE', keys[turn], '(' .. cursor, '+', 'COUNT', most - removed)
  for at, entry in ipairs(entries) do
    ids[at] = entry[1]
    leave(entry[2])
    if log then log.body('g', turn, entry[1], entry[2], 0) end
  end
  if #ids > 0 then
    redis.call('XDEL', keys[turn], unpack(ids)) -- at most 250: a chunk
    redis.call('HSET', lens, 'h' .. turn, ids[#ids])
  end
  removed = removed + #ids
  return #ids
end
-- When all is removed, the count may say something else: others put entries there, or deleted some.
local function purge(turn)
  local gone = remove_returned(turn)
  if turn ~= LEGACY and removed < most then gone = gone + remove_new(turn) end
  local left = redis.call('HGET', lens, turn) - gone
  local real = removed < most and 0 or math.max(1, left)
  if real == 0 then redis.call('ZREM', ready, turn) end
  redis.call('HSET', lens, turn, real)
  vanished = vanished + left - real
end
