-- Ends a live lease. Returns false when the message was cancelled meanwhile: then nothing else is left to do.
local function end_lease(token, handle, key)
  redis.call('ZREM', leases, token)
  land(key)
  if not any_cancelled or redis.call('SREM', cancelled, handle) == 0 then return true end
  forget_cancelled(handle)
  return false
end
local function vanish(place, id)
  redis.call('HINCRBY', meta, 'gone', 1)
  redis.call('HINCRBY', meta, 'vanished', 1)
  if log then log.note('z', id .. '-' .. place, '', 0) end
  return 'l'
end
