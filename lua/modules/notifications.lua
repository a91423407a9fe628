-- The stream of notifications, which blocked readers wait on.
local SOON = 5000 -- ms after which blocked readers look again by themselves

-- Adds one notification, which wakes exactly one blocked reader. `hint` is the number of the stream to look at, '' is "look
-- again". Readers that found nothing say until when they may be blocked; after `q.waiting_until`, nothing is written. The
-- cap is far above any number of blocked readers, so nobody is left whom an older notification could wake.
local function notify_reader(q, hint)
  if q.waiting_until > q.now then
    redis.call('XADD', q.notifications, 'MAXLEN', '~', 10000, '*', 's', hint)
  end
end

-- Makes all notifications count as seen, after a reader found nothing: what they announced was taken. Notes until when that
-- reader may be blocked, if it will be.
local function clear_notifications(q, blocks)
  local reply = redis.pcall('XGROUP', 'SETID', q.notifications, 'shardq', '$')
  if reply.err then redis.call('XGROUP', 'CREATE', q.notifications, 'shardq', '$', 'MKSTREAM') end
  if redis.call('XLEN', q.notifications) > 0 then redis.call('XTRIM', q.notifications, 'MAXLEN', 0) end
  local until_when = q.now + 2 * blocks
  if blocks > 0 and q.waiting_until < until_when then redis.call('HSET', q.meta, 'waiting', until_when) end
end
