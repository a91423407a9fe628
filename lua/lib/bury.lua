-- The way to the dead letters.
--- @include lib/doomed
--- @include lib/attributes
--- @include lib/timed
-- Move a body there. Full means that the move waits: the message is parked and tried again.
-- Returns false when it had to wait.
local function bury(handle, place, id, body_key, fields, count, reason, last_error)
  if redis.call('XLEN', dead) >= max_dead then
    note_attempts(handle, count, (max_deliveries == 0 or count < max_deliveries) and DOOMED or '0', last_error)
    redis.call('ZADD', delayed, timed('d', fields[1] == 'K' and fields[2], now + 5000), handle)
    save_heads()
    if fields[1] == 'K' then redis.call('HSET', owners, handle, fields[2]) end
    if log then log.body('p', place, id, fields, count, now + 5000) end
    return false
  end
  local foreign = place == 'l' or (fields[1] ~= 'k' and fields[1] ~= 'K') or #fields < 4
  local attributes = foreign and '' or attributes_of(fields)
  local origin = string.match(attributes, ' i(%S+)')
  -- With those before it was redriven. Who else writes attributes may write any number.
  local total = count + math.min(tonumber(string.match(attributes, ' c(%d+)')) or 0, 1000000000)
  local entry = {'XADD', dead, '*', 'i', origin or (id .. '-' .. place), 'r', reason, 'c', total, 'e', last_error}
  if foreign then
    for _, value in ipairs({'k', '', 'l', '', 'm', ''}) do entry[#entry + 1] = value end
  end
  for _, value in ipairs(fields) do entry[#entry + 1] = value end
  redis.call(unpack(entry))
  redis.call('XDEL', body_key, id)
  redis.call('HDEL', attempts, handle)
  if origin then redis.call('HDEL', moved, origin) end
  redis.call('HINCRBY', meta, 'gone', 1)
  redis.call('HINCRBY', meta, 'buried', 1)
  if log then log.body(max_deliveries == 0 and 'r' or 'b', place, id, fields, count) end
  return true
end
