-- The stream of notifications, which blocked readers wait on.
local SOON = 5000 -- ms after which blocked readers look again by themselves
local MOST_NOTIFICATIONS = 10000 -- far above any number of blocked readers

-- Appends a notification. If that fails, since another program wrote the key, the call succeeds all the same: a reader
-- looks again by itself, and the key fails it when it is about to block.
function Notifications.wake_reader(key, hint)
  pcall_redis('XADD', key, 'MAXLEN', '~', MOST_NOTIFICATIONS, '*', 's', hint)
end

-- Notes that one blocked reader is to be woken, if there is any. Readers that found nothing say until when they may be
-- blocked. A hint is the number of the stream to look at.
function Notifications.notify_reader(q, hint)
  -- On a busy queue nobody is blocked, so nothing is written.
  if q.waiting <= q.now then return end
  local wakes = q.wakes
  if wakes then wakes[#wakes + 1] = hint or '' else q.wakes = {hint or ''} end
end

-- One of the blocked readers watches for what time alone brings: it looks at the moment `watched`. A second one, its
-- deputy, looks a little later, should the first be gone. All others sleep until they are woken, or a hundred would ask
-- for one message.
local DEPUTY = 250 -- ms

-- Until when somebody watches; 0: nobody does. (A moment far ahead was noted by a clock that has been set back.)
local function watched_until(q, name)
  local till = abs((q.odd[name] or 0) + 0)
  return till > q.now and till <= q.now + SOON + DEPUTY and till or 0
end

-- The caller was to look at `watch`: it does now. (0: it was to sleep; nil: others of its client watch.)
local function stop_watching(q, watch)
  if not watch or watch == 0 then return end
  if q.odd.watched and abs(q.odd.watched + 0) == watch then State.put_odd(q, 'watched', '') end
  if q.odd.deputy and q.odd.deputy + 0 == watch then State.put_odd(q, 'deputy', '') end
end

-- A watch that was passed on by a notification has a minus before its moment until it is known that a reader took the
-- notification. If none did, nobody watches: the caller is about to remove it.
local function settle_passed_watch(q)
  local moment = q.odd.watched
  if not moment or moment + 0 > 0 then return end
  local key = q.keys[NOTIFICATIONS]
  local unread = pcall_redis('XREADGROUP', 'GROUP', 'shardq', 'reader', 'COUNT', 1, 'NOACK', 'STREAMS', key, '>')
  State.put_odd(q, 'watched', unread and not unread.err and '' or sub(moment, 2))
end

-- A reader found nothing, and stays for so many ms. Time brings something at `at`. Returns in how many ms it is to look
-- again, -1 if it shall sleep, -2 if others watch meanwhile.
function Notifications.watch(q, at, watch, stays)
  -- It looks now, so the watch is free: for itself, unless somebody has it already.
  stop_watching(q, watch)
  settle_passed_watch(q)
  if at >= FAR then return -1 end
  local wait = max(0, ceil(at - q.now))
  if wait >= SOON then return wait end -- all look by then
  -- A reader that leaves before that moment cannot watch. One need not, if its client has another that does.
  if wait > stays or not watch then return -1 end
  local moment = q.now + wait
  local watched = watched_until(q, 'watched')
  if watched == 0 or moment < watched then
    State.put_odd(q, 'watched', spell(moment))
    return wait
  end
  -- One deputy is enough. If both are gone, all look again after a `wait_slice` at the latest.
  if wait + DEPUTY > stays or watched_until(q, 'deputy') > 0 then return -2 end
  State.put_odd(q, 'deputy', spell(moment + DEPUTY))
  return wait + DEPUTY
end

-- Says whether a blocked reader is to be woken, since time brings something at `at` and none of them watches for it.
local function lacks_watcher(q, at)
  if at >= q.now + SOON or q.waiting <= q.now or q.wakes then return false end
  local watched = watched_until(q, 'watched')
  return watched == 0 or at < watched
end

-- Time brings something at `at`: wakes a reader to look, and so to watch for it, if none does.
function Notifications.announce_moment(q, at)
  if lacks_watcher(q, at) then Notifications.notify_reader(q) end
end

-- A reader that was handed messages does not watch any more. The one that is woken is told until when to watch, so it
-- need not look; but for what comes later, it looks, and says whether it stays for so long.
function Notifications.pass_watch_on(q, at, watch)
  stop_watching(q, watch)
  if not lacks_watcher(q, at) then return end
  local moment = ceil(at)
  -- A notification that nobody reads keeps the watch for so long at most.
  if moment <= q.now or moment > q.now + DEPUTY then return Notifications.notify_reader(q) end
  -- Negative until a reader that finds nothing has seen whether the notification was taken (`settle_passed_watch`).
  State.put_odd(q, 'watched', spell(-moment))
  Notifications.notify_reader(q, '@' .. spell(moment))
end

-- Wakes a reader for each of so many messages that may be delivered from now on.
local MOST_WAKED = 64
function Notifications.notify_readers(q, number)
  for _ = 1, min(number, MOST_WAKED) do Notifications.notify_reader(q) end
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
  -- Another program has deleted the stream or its group: a reader that is about to block needs both.
  local reply = pcall_redis('XGROUP', 'SETID', key, 'shardq', '$')
  if reply.err then call('XGROUP', 'CREATE', key, 'shardq', '$', 'MKSTREAM') end
  if q.noted > 0 then call('XTRIM', key, 'MAXLEN', 0) end
end

-- Tells that these messages have ended, if somebody waits for that. A waiter looks for itself once in a while, so where
-- this fails nothing else shall.
local KEPT_ENDS = 1000
function Notifications.announce_ends(q, ids)
  -- Nobody waits for results on most queues: then this costs one look.
  if #ids == 0 or tonumber(call('HGET', q.keys[META], 'awaited') or 0) <= q.now then return end
  pcall_redis('XADD', q.keys[FINISHED], 'MAXLEN', '~', KEPT_ENDS, '*', 'ids', concat(ids, ' '))
end
