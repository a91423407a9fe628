-- The stream of notifications, which blocked readers wait on.
Notifications.SOON = 5000 -- ms after which blocked readers look again by themselves
Notifications.MOST_NOTIFICATIONS = 10000 -- far above any number of blocked readers

-- Wakes one blocked reader, if there is any. Readers that found nothing say until when they may be blocked. A hint is
-- the number of the stream to look at.
function Notifications.notify_reader(q, hint)
  if q.waiting > q.now then
    call('XADD', q.keys[NOTIFICATIONS], 'MAXLEN', '~', Notifications.MOST_NOTIFICATIONS, '*', 's', hint or '')
  end
end

-- Makes all notifications count as seen, after a reader found that nothing may be delivered: what they announced was
-- taken.
-- Notes until when that reader may be blocked, if it will be.
function Notifications.clear_notifications(q, blocks)
  local key = q.keys[NOTIFICATIONS]
  local reply = pcall_redis('XGROUP', 'SETID', key, 'shardq', '$')
  if reply.err then call('XGROUP', 'CREATE', key, 'shardq', '$', 'MKSTREAM') end
  if call('XLEN', key) > 0 then call('XTRIM', key, 'MAXLEN', 0) end
  local till = q.now + 2 * blocks
  if blocks > 0 and q.waiting < till then State.put(q, 'waiting', till) end
end

-- Tells that these messages have ended, if somebody waits for that. A waiter looks for itself once in a while, so where
-- this fails nothing else shall.
local KEPT_ENDS = 1000
function Notifications.announce_ends(q, ids)
  if #ids == 0 or tonumber(call('HGET', q.keys[META], 'awaited') or 0) <= q.now then return end
  pcall_redis('XADD', q.keys[FINISHED], 'MAXLEN', '~', KEPT_ENDS, '*', 'ids', concat(ids, ' '))
end
