-- The stream of notifications, which blocked readers wait on.
Notifications.SOON = 5000 -- ms after which blocked readers look again by themselves
local MOST_NOTIFICATIONS = 10000 -- far above any number of blocked readers

-- Appends a notification. Where that fails, since another program wrote the key, what was to be told is done all the
-- same: a reader looks again by itself, and the key fails it when it is about to block.
function Notifications.wake_reader(key, hint)
  pcall_redis('XADD', key, 'MAXLEN', '~', MOST_NOTIFICATIONS, '*', 's', hint)
end

-- Notes that one blocked reader is to be woken, if there is any. Readers that found nothing say until when they may be
-- blocked. A hint is the number of the stream to look at.
function Notifications.notify_reader(q, hint)
  if q.waiting <= q.now then return end
  local wakes = q.wakes
  if wakes then wakes[#wakes + 1] = hint or '' else q.wakes = {hint or ''} end
end

-- Wakes the readers that the call has noted.
function Notifications.wake_readers(q)
  local wakes = q.wakes
  if not wakes then return end
  for _, hint in ipairs(wakes) do Notifications.wake_reader(q.keys[NOTIFICATIONS], hint) end
  if q.noted then q.noted = q.noted + #wakes end
end

-- Makes all notifications count as seen, after a reader found that nothing may be delivered: what they announced was
-- taken.
function Notifications.clear_notifications(q)
  local key = q.keys[NOTIFICATIONS]
  local reply = pcall_redis('XGROUP', 'SETID', key, 'shardq', '$')
  if reply.err then call('XGROUP', 'CREATE', key, 'shardq', '$', 'MKSTREAM') end
  if q.noted > 0 then call('XTRIM', key, 'MAXLEN', 0) end
end

-- Tells that these messages have ended, if somebody waits for that. A waiter looks for itself once in a while, so where
-- this fails nothing else shall.
local KEPT_ENDS = 1000
function Notifications.announce_ends(q, ids)
  if #ids == 0 or tonumber(call('HGET', q.keys[META], 'awaited') or 0) <= q.now then return end
  pcall_redis('XADD', q.keys[FINISHED], 'MAXLEN', '~', KEPT_ENDS, '*', 'ids', concat(ids, ' '))
end
