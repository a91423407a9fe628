-- Verbs of operators and of single messages: limit, weigh, limits, weights, pause, cancel, replace, redrive, purge.

-- Begins a call that changes accounts.
local function open_accounts(KEYS, more)
  local fields = State.fields_of_settle()
  for _, name in ipairs(more or {}) do fields[#fields + 1] = name end
  local q = State.open_call(KEYS, fields, 18)
  if not q then return nil end
  q.cancels = q.values[11] + 0
  if q.rules.journal > 0 then Journal.begin_events(q) end
  return q
end

local function parts_of_limits(a)
  local cap, rate, burst, pause, length, weight = match(a.limits, '^([^,]*),([^,]*),([^,]*),(%d+),(%d+),(%d+)$')
  if not cap then return {'', '', '', '0', '0', '1'} end
  return {cap, rate, burst, pause, length, weight}
end

-- Gives an account other limits of its own, writes them down for those who list them, and puts it where it belongs now.
local function change_limits(q, a, parts)
  local text = concat(parts, ',')
  a.limits = text == Limits.NO_LIMITS and '-' or text
  if a.limits == '-' then add(q, 'unlimited', a.name) else add(q, 'limited', a.name, text) end
  a.look_at = 0
  Limits.heed_limits(a, q.rules, q.now)
  if a.delayed > 0 then a.next_at = q.now end
end

local function close_limits(q, key, client)
  send(q, 'unlimited', 'HDEL', key)
  send(q, 'limited', 'HSET', key)
  for _, name in ipairs(q.names) do Turns.schedule(q, q.accounts[name]) end
  Settle.close_settle(q, client)
  Notifications.notify_reader(q)
end

-- "-" is what the queue says, "" leaves a limit as it is; of a pause "+ms" is from now, "0" none.
local function changed_limits(q, a, cap, rate, burst, pause)
  local parts = parts_of_limits(a)
  if cap ~= '' then parts[1] = cap == '-' and '' or cap end
  if rate ~= '' then parts[2] = rate == '-' and '' or rate end
  if burst ~= '' then parts[3] = burst == '-' and '' or burst end
  if pause == '0' then
    parts[4], parts[5] = '0', '0'
  elseif pause ~= '' then
    local till = byte(pause) == 43 and q.now + pause or pause + 0 -- 43 is '+'
    parts[4], parts[5] = spell(till), spell(max(0, till - q.now))
  elseif parts[4] + 0 <= q.now then
    parts[4], parts[5] = '0', '0'
  end
  return parts
end

local function note_limited(q, name, pause, parts)
  if not q.events then return end
  local till = parts[4] + 0
  local kind = pause == '' and 'i' or pause == '0' and 'f' or 'h'
  Journal.note_event(q, kind, '', name, 0, till > 0 and till < FAR and till or nil)
end

-- @verb limit | allow-oom: give shard keys (or parents) limits of their own. What has room now may be delivered. The epoch moves only
-- so that a late copy of this call changes nothing.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] bodies: messages outside of streams
-- KEYS[3] turns: whose turn it is
-- KEYS[4] due: when time changes something for a shard key
-- KEYS[5] notifications: wakes blocked readers
-- KEYS[6] journal: what happened to the messages
-- KEYS[7] producers: lanes of producers by end
-- KEYS[8] delayed: messages that are not yet due
-- KEYS[9] dedup: keys and bulk offsets that were stored
-- KEYS[10] dedup_index: the same by end
-- KEYS[11] bulk_offsets: offsets by end
-- KEYS[12] leases: tokens by end
-- KEYS[13] returned: what was given back or came due
-- KEYS[14] errors: the last error of messages that were given back
-- KEYS[15] limits: limits and weights of shard keys that have any
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: unused
-- ARGV[4] client: what the journal calls the caller
-- ARGV[5..] changes: shard key (each once), cap, rate, burst, paused until (ms; '+ms' from now), ...; '' leaves a limit as it is, '-' is what
--            the queue says
-- Reply: {'OK', how many of the shard keys this call did} | 'NOQUEUE' | 'EPOCH' | 'PLAIN' where no message counts
--        | 'CHILD' where the queue has parents, and a key is a child
function verbs.limit(KEYS, ARGV)
  if not call then begin() end
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = open_accounts(KEYS)
  if q.rules.window == 0 then return 'PLAIN' end
  local names = {}
  for at = 5, #ARGV, 5 do
    if Rules.owner_of(q.rules, ARGV[at]) ~= ARGV[at] then return 'CHILD' end
    names[#names + 1] = ARGV[at]
  end
  Accounts.load_accounts(q, names)
  for at = 5, #ARGV, 5 do
    local a = q.accounts[ARGV[at]]
    local parts = changed_limits(q, a, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    change_limits(q, a, parts)
    note_limited(q, a.name, ARGV[at + 4], parts)
  end
  State.put(q, 'epoch', ARGV[2])
  close_limits(q, KEYS[15], ARGV[4])
  return {'OK', #names}
end

-- @verb weigh | allow-oom: give shard keys another weight. The epoch moves only so that a late copy of this call changes nothing.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] bodies: messages outside of streams
-- KEYS[3] turns: whose turn it is
-- KEYS[4] due: when time changes something for a shard key
-- KEYS[5] notifications: wakes blocked readers
-- KEYS[6] journal: what happened to the messages
-- KEYS[7] producers: lanes of producers by end
-- KEYS[8] delayed: messages that are not yet due
-- KEYS[9] dedup: keys and bulk offsets that were stored
-- KEYS[10] dedup_index: the same by end
-- KEYS[11] bulk_offsets: offsets by end
-- KEYS[12] leases: tokens by end
-- KEYS[13] returned: what was given back or came due
-- KEYS[14] errors: the last error of messages that were given back
-- KEYS[15] limits: limits and weights of shard keys that have any
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: unused
-- ARGV[4] client: what the journal calls the caller
-- ARGV[5..] changes: shard key, weight, ...; 1 is every shard key's and kept of none
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.weigh(KEYS, ARGV)
  if not call then begin() end
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer then return answer end
  local q = open_accounts(KEYS)
  local names = {}
  for at = 5, #ARGV, 2 do names[#names + 1] = ARGV[at] end
  Accounts.load_accounts(q, names)
  for at = 5, #ARGV, 2 do
    local a = q.accounts[ARGV[at]]
    local parts = parts_of_limits(a)
    parts[6] = ARGV[at + 1]
    change_limits(q, a, parts)
    Journal.note_event(q, 'j', '', a.name, 0)
  end
  State.put(q, 'epoch', ARGV[2])
  close_limits(q, KEYS[15], ARGV[4])
  return 'OK'
end

-- @verb limits | no-writes: a page of the shard keys that have limits or weights of their own, and whether the whole queue is paused.
-- KEYS[1] meta: until when the queue is paused
-- KEYS[2] limits: limits and weights of shard keys that have any
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many
-- Reply: {now} when there is no such queue | {now, the time in ms until which the queue is paused or '', cursor to go on from ('0' at
--         the end), {shard key, "cap rate burst until", ...}}
function verbs.limits(KEYS, ARGV)
  if not call then begin() end
  local time = call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local epoch, paused = unpack(call('HMGET', KEYS[1], 'epoch', 'paused'))
  if not epoch then return {now} end
  local page, rows = call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2]), {}
  for at = 1, #page[2], 2 do
    local cap, rate, burst, till = match(page[2][at + 1], '^([^,]*),([^,]*),([^,]*),(%d+),')
    if cap and (cap ~= '' or rate ~= '' or burst ~= '' or till + 0 > now) then
      local spelled = function(text) return text == '' and '-' or text end
      rows[#rows + 1] = page[2][at]
      rows[#rows + 1] = spelled(cap) .. ' ' .. spelled(rate) .. ' ' .. spelled(burst) .. ' ' .. till
    end
  end
  local till = match(paused or '', '^%d+')
  return {now, till and till + 0 > now and till or '', page[1], rows}
end

-- @verb weights | no-writes: the weights of shard keys.
-- KEYS[1] limits: limits and weights of shard keys that have any
-- Reply: "weight:length:key" of each, joined
function verbs.weights(KEYS)
  if not call then begin() end
  local all, parts = call('HGETALL', KEYS[1]), {}
  for at = 1, #all, 2 do
    local weight = match(all[at + 1], ',(%d+)$')
    if weight and weight ~= '1' then parts[#parts + 1] = weight .. ':' .. #all[at] .. ':' .. all[at] end
  end
  return concat(parts)
end

-- @verb pause | allow-oom: let reads pass over the whole queue until a time, or no more. The epoch moves only so that a late copy of this
-- call changes nothing.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] journal: what happened
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] until: the server's time in ms, '+ms' from now, '0' = it is paused no more
-- ARGV[4] readers: wake so many of them when it is paused no more, or is to go on by itself
-- ARGV[5] client: what the journal calls the caller
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.pause(KEYS, ARGV)
  if not call then begin() end
  local meta, till = KEYS[1], ARGV[3]
  local answer = Queue.check_epoch(meta, ARGV[1], ARGV[2])
  if answer then return answer end
  local time = call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local waiting, text = unpack(call('HMGET', meta, 'waiting', 'rules'))
  till = byte(till) == 43 and now + till or till + 0 -- 43 is '+'
  call('HSET', meta, 'epoch', ARGV[2], 'paused', till > now and spell(till) .. ',' .. spell(till - now) or '')
  if till < FAR and waiting + 0 > now then
    for _ = 1, ARGV[4] do call('XADD', KEYS[2], 'MAXLEN', '~', Notifications.MOST_NOTIFICATIONS, '*', 's', '') end
  end
  local q = {keys = {[META] = meta, [JOURNAL] = KEYS[3]}, rules = Rules.rules_of(text), now = now}
  if q.rules.journal > 0 then
    Journal.begin_events(q)
    Journal.note_event(q, till == 0 and 'f' or 'h', '', '', 0, till > 0 and till < FAR and till or nil)
    Journal.save_events(q, ARGV[5])
  end
  return 'OK'
end
