-- Settling: a delivery is over, and what is known of its message goes.
--- @use messages, journal

-- Forgets a message that was acked: its body, and what was known of it. `key` is the stream where the body lies.
local function forget_message(q, key, id, handle)
  local body = redis.call('XRANGE', key, id, id)[1]
  local origin = body and string.match(attributes_of(body[2]), ' i(%S+)')
  if origin then redis.call('HDEL', q.moved, origin) end
  redis.call('XDEL', key, id)
  redis.call('HDEL', q.attempts, handle)
end

-- Forgets a message that was cancelled while it was in flight, now that its lease is over. If it was redriven, `cancel` noted
-- its original id.
local function forget_cancelled(q, handle)
  local origin = string.match(redis.call('HGET', q.attempts, handle) or '', '^0|| i(%S+)$')
  if origin then redis.call('HDEL', q.moved, origin) end
  redis.call('HDEL', q.attempts, handle)
  redis.call('HINCRBY', q.meta, 'gone', 1)
  if q.events then note_event(q, 'c', origin or string.gsub(handle, '^(%w+):(.*)$', '%2-%1'), '', 0) end
end
