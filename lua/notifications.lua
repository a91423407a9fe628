-- The stream of notifications, which blocked readers wait on.
local SOON = 5000 -- ms after which blocked readers look again by themselves
local MOST_NOTIFICATIONS = 10000 -- far above any number of blocked readers

-- Appends a notification. If that fails, since another program wrote the key, the call succeeds anyway: a reader looks
-- again by itself, and the key fails it when it is about to block.
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

-- One of the blocked readers watches for what time alone brings: it looks at the moment `watched`. Five others, its
-- deputies, look one after the other within 250 ms after it, should those before be gone. All others sleep until they
-- are woken, or a hundred would ask for one message.
-- (A watch that is passed on is taken by some deputy, which then has two turns. With five deputies, one turn is left
-- for the reader that passed it on and comes back while four others are gone.)
local TURN = 50 -- ms from one who looks to the next
local DEPUTIES = 5
local LATEST = 250 -- ms after the moment: by then the last deputy has looked
local KEPT_LOOKS = 16 -- of deputies, also of those who look at other moments
local ROUND = 30 -- ms for which readers pass the news on to one who has not heard it

-- Until when somebody watches; 0: nobody does. (A moment far ahead was noted by a clock that has been set back.)
local function watched_until(q)
  local till = abs((q.odd.watched or 0) + 0)
  return till > q.now and till <= q.now + SOON and till or 0
end

-- When the deputies look.
local function looks_of_deputies(q)
  local looks = {}
  for text in gmatch(q.odd.deputies or '', '%d+') do
    local look = text + 0
    if look > q.now and look <= q.now + SOON + LATEST then looks[#looks + 1] = look end
  end
  return looks
end

local function save_looks(q, looks)
  local texts = {}
  for at = 1, min(#looks, KEPT_LOOKS) do texts[at] = spell(looks[at]) end
  State.put_odd(q, 'deputies', concat(texts, ' '))
end

-- The caller was to look at `watch`: it does now. (0: it was to sleep; nil: others of its client watch.) It may have
-- had a turn too, before it took over the watch.
local function stop_watching(q, watch, turn)
  if not watch or watch == 0 then return end
  if q.odd.watched and abs(q.odd.watched + 0) == watch then State.put_odd(q, 'watched', '') end
  if not q.odd.deputies then return end
  local left = {}
  for _, look in ipairs(looks_of_deputies(q)) do
    if look ~= watch and look ~= turn then left[#left + 1] = look end
  end
  save_looks(q, left)
end

-- A watch that was passed on by a notification has a minus before its moment until it is known that a reader took the
-- notification. If none did, nobody watches: the caller is about to remove it.
local function settle_passed_watch(q)
  local moment = q.odd.watched
  if not moment or moment + 0 > 0 then return end
  Arguments.check_all(q) -- this is an effect, so no key may be missing behind it
  local key = q.keys[NOTIFICATIONS]
  local unread = pcall_redis('XREADGROUP', 'GROUP', 'shardq', 'reader', 'COUNT', 1, 'NOACK', 'STREAMS', key, '>')
  State.put_odd(q, 'watched', unread and not unread.err and '' or sub(moment, 2))
end

-- Says whether somebody looks when time brings something at `at`, or before that.
local function is_watched(q, at)
  local watched = watched_until(q)
  return watched > 0 and watched <= at
end

-- Which turn to look nobody has: 0 is the watcher's, the others are the deputies'. Nil if all are taken.
local function free_turn(q, moment)
  if not is_watched(q, moment) then return 0 end
  local taken = {}
  for _, look in ipairs(looks_of_deputies(q)) do taken[ceil((look - moment) / TURN)] = true end
  for turn = 1, DEPUTIES do
    if not taken[turn] then return turn end
  end
end

-- Notes one more look of a deputy, as the first.
local function add_look(q, look)
  local looks = {look}
  for _, other in ipairs(looks_of_deputies(q)) do looks[#looks + 1] = other end
  save_looks(q, looks)
end

-- The caller takes that turn, or looks when it leaves, if that is sooner. Returns when it looks.
local function take_turn(q, moment, turn, leaves)
  if turn > 0 then
    local look = min(moment + turn * TURN, leaves)
    add_look(q, look)
    return look
  end
  -- The watcher of a later moment is a deputy from now on, and has yet to hear of this one.
  local later = watched_until(q)
  if later > moment then add_look(q, later) end
  State.put_odd(q, 'watched', spell(moment))
  return moment
end

-- Says whether some deputy looks for a later moment only: it was not blocked when the news of this one went round.
local function has_missed_news(q, moment)
  for _, look in ipairs(looks_of_deputies(q)) do
    if look > moment + LATEST then return true end
  end
  return false
end

-- Since when the news goes round, if the next one that is blocked is to have it; nil if it is not. A reader passes on
-- the news while turns are free, when it hears it: so a round ends with who knows it. If somebody has missed it by
-- then, it continues for a while: those who have heard it stand before readers that were not blocked yet.
local function goes_round(q, moment, watch, look, since)
  if not free_turn(q, moment) then return nil end
  local is_sooner = watch == 0 or look + TURN < watch
  -- It hears of a moment that is later than the one it watched for, too, if others hand it on.
  if since and (is_sooner or watch < moment) then return since end
  if since and abs(q.now - since) < ROUND and has_missed_news(q, moment) then return since end
  return is_sooner and not is_watched(q, moment) and q.now or nil
end

-- Hands what a reader cannot do to the next one that is blocked: turns that are free, and the watch, if it leaves
-- before the moment.
local function hand_on(q, moment, watch, look, is_leaving, since)
  since = goes_round(q, moment, watch, look, since) or is_leaving and not is_watched(q, moment) and q.now
  if not since then return end
  State.put_odd(q, 'handed', spell(since))
  q.hands_on = true
end

-- A reader found nothing, and stays for a time. Time brings something at `at`. Returns in how many ms it is to look
-- again, -1 if it shall sleep, -2 if others watch meanwhile.
function Notifications.watch(q, at, watch, turn_before, stays)
  local since = tonumber(q.odd.handed)
  State.put_odd(q, 'handed', '')
  -- It looks now, so the watch is free: for itself, unless somebody has it already.
  stop_watching(q, watch, turn_before)
  settle_passed_watch(q)
  -- Nothing comes any more at the moment that was watched. The watcher may be gone, so nobody counts on it.
  if watched_until(q) > 0 and watched_until(q) < floor(at) then State.put_odd(q, 'watched', '') end
  if at >= FAR then return -1 end
  local wait = max(0, ceil(at - q.now))
  if wait >= SOON then return wait end -- all look by then
  if not watch then return -1 end -- its client has another that watches
  local moment = q.now + wait
  local leaves = q.now + stays
  local turn = free_turn(q, moment)
  -- If all who have a turn are gone, the others look again after a `wait_slice` at the latest.
  if not turn then return -2 end
  -- A reader that leaves before the moment gets one that is too late for it: by that it says next time what it knows.
  local look = moment > leaves and moment + LATEST or take_turn(q, moment, turn, leaves)
  hand_on(q, moment, watch, look, stays < TURN, since)
  return look - q.now
end

-- Says whether nobody watches for what time brings at `at`: all look by then.
function Notifications.comes_late(q, at) return at >= q.now + SOON end

-- Says whether a blocked reader is to be woken, since time brings something at `at` and none of them watches for it.
local function lacks_watcher(q, at)
  return at < q.now + SOON and q.waiting > q.now and not q.wakes and not is_watched(q, at)
end

-- Wakes a reader to look, and to hand on what it hears.
local function hand_watch(q)
  State.put_odd(q, 'handed', spell(q.now))
  Notifications.notify_reader(q)
end

-- Time brings something at `at`: wakes a reader to look, and so to watch for it, if none does.
function Notifications.announce_moment(q, at)
  if lacks_watcher(q, at) then hand_watch(q) end
end

-- A reader that was handed messages does not watch any more. The reply to the one that is woken says until when to
-- watch, so it need not look; but for what comes later, it looks, and says whether it stays that long.
function Notifications.pass_watch_on(q, at, watch, turn)
  stop_watching(q, watch, turn)
  if q.waiting <= q.now or not lacks_watcher(q, at) then return end
  local moment = ceil(at)
  -- A notification that nobody reads keeps the watch for so long at most.
  if moment <= q.now or moment > q.now + LATEST then return hand_watch(q) end
  -- Negative until a reader that finds nothing has seen whether the notification was taken (`settle_passed_watch`).
  State.put_odd(q, 'watched', spell(-moment))
  Notifications.notify_reader(q, '@' .. spell(moment))
end

-- Wakes a reader for each of the messages that may be delivered from now on.
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

-- Makes all notifications count as seen, after a reader found that nothing may be delivered: the messages that they
-- announced were taken. Behind them comes the one by which it hands on what it cannot do.
function Notifications.clear_notifications(q)
  local key = q.keys[NOTIFICATIONS]
  -- Another program has deleted the stream or its group: a reader that is about to block needs both.
  local reply = pcall_redis('XGROUP', 'SETID', key, 'shardq', '$')
  if reply.err then call('XGROUP', 'CREATE', key, 'shardq', '$', 'MKSTREAM') end
  if q.noted > 0 then call('XTRIM', key, 'MAXLEN', 0) end
  if q.hands_on and q.waiting > q.now then Notifications.wake_reader(key, '') end
end

-- Tells that these messages have ended, if somebody waits for that. A waiter looks for itself once in a while, so where
-- this fails nothing else shall.
local KEPT_ENDS = 1000
function Notifications.announce_ends(q, ids)
  -- Nobody waits for results on most queues: then this costs one look.
  if #ids == 0 or tonumber(call('HGET', q.keys[META], 'awaited') or 0) <= q.now then return end
  pcall_redis('XADD', q.keys[FINISHED], 'MAXLEN', '~', KEPT_ENDS, '*', 'ids', concat(ids, ' '))
end
