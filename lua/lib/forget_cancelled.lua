-- The lease of a cancelled message is over: nothing is left of it. Of a redriven one `cancel` noted the original id.
local function forget_cancelled(handle)
  local origin = string.match(redis.call('HGET', attempts, handle) or '', '^0|| i(%S+)$')
  if origin then redis.call('HDEL', moved, origin) end
  redis.call('HDEL', attempts, handle)
  redis.call('HINCRBY', meta, 'gone', 1)
  if log then log.note('c', origin or string.gsub(handle, '^(%w+):(.*)$', '%2-%1'), '', 0) end
end
