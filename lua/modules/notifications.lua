-- The stream of notifications, which blocked readers wait on.

-- Adds one notification, which wakes exactly one blocked reader. `hint` is the number of the stream to look at, '' is "look
-- again". Readers that found nothing say until when they may be blocked; after `q.waiting_until`, nothing is written. The
-- cap is far above any number of blocked readers, so nobody is left whom an older notification could wake.
local function notify_reader(q, hint)
  if q.waiting_until > q.now then
    redis.call('XADD', q.notifications, 'MAXLEN', '~', 10000, '*', 's', hint)
  end
end
