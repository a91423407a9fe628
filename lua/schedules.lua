-- Schedules: calls that are written again and again, each at its times, which are called slots. The state has of each
-- under 'S:' and its name how far it is. A schedule of the program ("c:" and a name) has "last", the time in ms up to
-- which its slots are written; one that users stored ("u:" and a name) "last.revision.flag", where the flag is 'p'
-- while it is paused. A write of slots is for one such text and replaces it (`check_slot` in write.lua), so each slot
-- is written once, and none of a schedule that was changed or removed meanwhile. Under 'L:' and its name are the last
-- calls that were written for it (`note_run` in write.lua).
--   `schedules`     of stored ones: name -> "size:owner" and what it is (shardq/ops/schedules/record.py); the owner is
--                   the shard key, or its parent, in whose share of `max_schedules` it counts ('H:')
--   `schedule_due`  name -> of stored ones when a worker looks at it next, in ms: at its next slot, and once a day;
--                   NEVER if it is paused. Those of the program: FAR + the ms since which it was known to be in use
local MOST_FIXED = 10000 -- schedules of programs that are remembered
local TOO_FAR = 90000000 -- ms, 25 hours: a look that is further ahead was noted by a clock that was wrong
local FORGOTTEN = 34560000000 -- ms, 400 days: a schedule of the program without slots for so long is forgotten

local function parts_of(said) return match(said or '', '^(%d+)%.([^.]*)%.(%l)$') end

-- Forgets some schedules of the program that no worker has any more: a few for each new one, so they are bounded.
local function forget_fixed(meta, due, now)
  local names = call('ZRANGEBYSCORE', due, FAR, FAR + now - FORGOTTEN, 'LIMIT', 0, 8)
  for _, name in ipairs(names) do
    local last = tonumber(call('HGET', meta, 'S:' .. name) or 0) or 0
    if last < now - FORGOTTEN then
      call('HDEL', meta, 'S:' .. name, 'L:' .. name)
      call('ZREM', due, name)
    else
      call('ZADD', due, spell(FAR + last), name)
    end
  end
end

-- @verb begin_schedule: remember a schedule of the program that is new here: its slots count from now on.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedule_due: all schedules by their next slots
-- ARGV[1] name: of the schedule, "c:..."
-- Reply: {now, how far it is} | 'NOQUEUE' | 'FULL'
function verbs.begin_schedule(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedule-due'})
  Arguments.check(ARGV, {'fixed_schedule'})
  local name = ARGV[1]
  local epoch, said = unpack(call('HMGET', KEYS[1], 'epoch', 'S:' .. name)) -- at most 2: the fields
  if not epoch then return 'NOQUEUE' end
  local now = read_time()
  if said then return {now, said} end
  check_types({}, {KEYS[2]}, {})
  if call('ZCOUNT', KEYS[2], FAR, NEVER - 1) >= MOST_FIXED then return 'FULL' end
  forget_fixed(KEYS[1], KEYS[2], now)
  call('ZADD', KEYS[2], spell(FAR + now), name)
  call('HSET', KEYS[1], 'S:' .. name, spell(now))
  return {now, spell(now)}
end

-- Returns what is known of stored schedules: for each its name, how far it is, and what it is.
local function known_of(meta, schedules, names)
  local found = {}
  if #names == 0 then return found end
  local fields = {}
  local records = call('HMGET', schedules, unpack(names)) -- at most 100: a page
  for at, name in ipairs(names) do fields[at] = 'S:u:' .. name end
  local said = call('HMGET', meta, unpack(fields)) -- at most 100: a page
  for at, name in ipairs(names) do
    local n = #found
    found[n + 1], found[n + 2], found[n + 3] = name, said[at] or '', records[at] or ''
  end
  return found
end

-- @verb due_schedules | no-writes: stored schedules with a slot within some time, the soonest first, and how far
--   schedules of the program are. After a clock that was wrong was set back, those too that it has moved far ahead.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedules: the stored ones
-- KEYS[3] schedule_due: all schedules, by when a worker looks at them next
-- ARGV[1] within: ms
-- ARGV[2] count: of how many at most, 100 or fewer
-- ARGV[3..] fixed: names of schedules of the program
-- Reply: {now, {how far each of these is, '' if it is new}, {name, how far it is, what it is, ...}} | {now} when there
--        is no such queue
function verbs.due_schedules(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedules', 'schedule-due'})
  Arguments.check(ARGV, {'ms', 'few'}, {'fixed_schedule'}, 1000)
  local now = read_time()
  local fixed = {'epoch'}
  for at = 3, #ARGV do fixed[at - 1] = 'S:' .. ARGV[at] end
  local values = call('HMGET', KEYS[1], unpack(fixed)) -- at most 1,001: the schedules of a program
  if not values[1] then return {now} end
  local said = {}
  for at = 2, #fixed do said[at - 1] = values[at] or '' end
  local members = call('ZRANGEBYSCORE', KEYS[3], '-inf', now + ARGV[1], 'LIMIT', 0, ARGV[2])
  local left = ARGV[2] - #members
  if left > 0 then
    for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[3], now + TOO_FAR, '(' .. FAR, 'LIMIT', 0, left)) do
      members[#members + 1] = member
    end
  end
  local names = {}
  for at, member in ipairs(members) do names[at] = sub(member, 3) end
  return {now, said, known_of(KEYS[1], KEYS[2], names)}
end

-- @verb move_schedules | allow-oom: note when to look at stored schedules next, at those that are as far as the caller
-- knows.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedule_due: all schedules by their next slots
-- ARGV[1..] moves: name, how far it is, when to look next in ms, ...; at most 100
-- Reply: how many were moved
function verbs.move_schedules(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedule-due'})
  Arguments.check(ARGV, {}, {'schedule', 'schedule_state', 'moment'}, 100)
  local fields, moved, seen = {}, 0, {}
  for at = 1, #ARGV, 3 do fields[#fields + 1] = 'S:u:' .. ARGV[at] end
  local said = call('HMGET', KEYS[1], unpack(fields)) -- at most 100: the moves
  check_types({}, {KEYS[2]}, {})
  for at = 1, #ARGV, 3 do
    local text, name = said[(at + 2) / 3], ARGV[at]
    if not text then
      call('ZREM', KEYS[2], 'u:' .. name) -- another program took it away, or the state was lost
    elseif text == ARGV[at + 1] and not seen[name] then
      call('ZADD', KEYS[2], ARGV[at + 2], 'u:' .. name)
      moved = moved + 1
    end
    seen[name] = true
  end
  return moved
end

local function owner_in(text)
  local size, rest = match(text or '', '^(%d+):(.*)$')
  return size and sub(rest, 1, size)
end

-- Says who has no room for one more schedule, nil if there is.
local function beyond_schedules(q, most, stored, owner)
  if most <= 0 then return 'NONE' end
  local used = Shares.used(q, 'H:', owner)
  if not Shares.may_use(used, most - stored, 1, most) then return {'FULL', most, stored, used} end
end

-- @verb store_schedule: store a schedule for users, or change one. Its slots count from now on, or of one that comes
-- from another partition from where they are written there.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedules: the stored ones
-- KEYS[3] schedule_due: all schedules by their next slots
-- ARGV[1] name: of the schedule
-- ARGV[2] record: what it is
-- ARGV[3] revision: a nonce
-- ARGV[4] key: the shard key, in whose share it counts
-- ARGV[5] flag: 'a', or 'p' if it is paused
-- ARGV[6..] last: of one that comes from another partition, the time in ms up to which its slots are written
-- Reply: {'OK', now, how far it is} | 'NOQUEUE' | 'NONE' where the queue has no room for schedules
--        | {'FULL', how many there may be, how many there are, how many the shard key has}
function verbs.store_schedule(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedules', 'schedule-due'})
  Arguments.check(ARGV, {'schedule', 'record', 'word', 'key', 'schedule_flag'}, {'moment'}, 1)
  local q = State.open_call(KEYS, 3, 'max_schedules')
  if not q then return 'NOQUEUE' end
  local name, most = ARGV[1], tonumber(q.values[State.COMMON + 1] or 0)
  check_types({}, {KEYS[3]}, {})
  local before = owner_in(call('HGET', KEYS[2], name))
  local owner = Rules.owner_of(q.rules, ARGV[4])
  if before ~= owner then
    -- The sentinel is none; one that changes its owner leaves a place.
    local stored = call('HLEN', KEYS[2]) - 1 - (before and 1 or 0)
    local refused = beyond_schedules(q, most, stored, owner)
    if refused then return refused end
    Shares.count(q, 'H:', owner, 1)
    if before then Shares.count(q, 'H:', before, -1) end
    Shares.save(KEYS[1], q)
  end
  local said = (ARGV[6] or spell(q.now)) .. '.' .. ARGV[3] .. '.' .. ARGV[5]
  call('HSET', KEYS[1], 'S:u:' .. name, said)
  call('HSET', KEYS[2], name, #owner .. ':' .. owner .. ARGV[2])
  -- The next worker that looks finds out when its next slot is.
  call('ZADD', KEYS[3], ARGV[5] == 'p' and NEVER or spell(q.now), 'u:' .. name)
  return {'OK', q.now, said}
end

-- @verb pause_schedule | allow-oom: pause a stored schedule, or resume it: its slots count from then on.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedule_due: all schedules by their next slots
-- ARGV[1] name: of the schedule
-- ARGV[2] revision: a nonce
-- ARGV[3] flag: 'p' to pause it, 'a' to resume it
-- Reply: 1, 0 if there is none of this name
function verbs.pause_schedule(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedule-due'})
  Arguments.check(ARGV, {'schedule', 'word', 'schedule_flag'})
  local name, flag = ARGV[1], ARGV[3]
  local last, _, before = parts_of(call('HGET', KEYS[1], 'S:u:' .. name))
  if not last then return 0 end
  check_types({}, {KEYS[2]}, {})
  local now = read_time()
  -- A paused schedule keeps its place: slots are not missed, but left out. Those that are written already stay written.
  if before ~= flag and flag == 'a' then last = max(last + 0, now) end
  call('HSET', KEYS[1], 'S:u:' .. name, spell(last) .. '.' .. ARGV[2] .. '.' .. flag)
  call('ZADD', KEYS[2], flag == 'p' and NEVER or spell(now), 'u:' .. name)
  return 1
end

-- @verb remove_schedule | allow-oom: remove a stored schedule.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedules: the stored ones
-- KEYS[3] schedule_due: all schedules by their next slots
-- KEYS[4] producers: who made calls with numbers, by the end of their memory
-- ARGV[1] name: of the schedule
-- ARGV[2] number: of this call (`read_number`): it is done once, however often it is tried
-- Reply: {'OK', '1'} | {'OK', '0'} if there is none of this name | {'STALE'} | {'FULL', 'max_producers'}
function verbs.remove_schedule(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedules', 'schedule-due', 'producers'})
  Arguments.check(ARGV, {'schedule', 'call_number'})
  local producer, number, keep = Producers.read_number(ARGV[2])
  local q = State.open_call({[META] = KEYS[1], [PRODUCERS] = KEYS[4]}, 4, 'last', producer or '')
  if not q then return {'OK', '0'} end
  local record = ARGV[1] ~= '' and call('HGET', KEYS[2], ARGV[1])
  check_types({}, {KEYS[3]}, {})
  local answer = producer and Producers.check_call(q, number, keep, q.values[State.COMMON + 2])
  if answer and answer[1] == 'OK' then Producers.touch(q, q.values[State.COMMON + 1]) end
  if answer then return answer end
  if record then
    call('HDEL', KEYS[1], 'S:u:' .. ARGV[1], 'L:u:' .. ARGV[1])
    call('ZREM', KEYS[3], 'u:' .. ARGV[1])
    call('HDEL', KEYS[2], ARGV[1])
    local owner = owner_in(record)
    if owner then Shares.count(q, 'H:', owner, -1) end
    if q.changed_shares then Shares.note(q) end
  end
  local told = record and '1' or '0'
  Producers.end_call(q, producer, told)
  State.save_state(q)
  return {'OK', told}
end

-- @verb schedules | no-writes: a part of all stored schedules, or one.
-- KEYS[1] meta: how far each schedule is
-- KEYS[2] schedules: the stored ones
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many
-- ARGV[3] name: only the one of this name, '' for all
-- Reply: {now, cursor, {name, how far it is, what it is, "slot:id ..." of its last calls, ...}}
--        | {now} when there is no such queue
function verbs.schedules(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'schedules'})
  Arguments.check(ARGV, {'cursor', 'count', 'schedule_or_none'})
  local now = read_time()
  local found = {}
  if not call('HGET', KEYS[1], 'epoch') then return {now} end
  local page
  if ARGV[3] == '' then
    page = call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
  else
    page = {'0', {ARGV[3], call('HGET', KEYS[2], ARGV[3]) or ''}}
  end
  local cursor, flat = page[1], page[2]
  if #flat == 0 then return {now, cursor, found} end
  local fields = {}
  for at = 1, #flat, 2 do fields[at], fields[at + 1] = 'S:u:' .. flat[at], 'L:u:' .. flat[at] end
  local said = call('HMGET', KEYS[1], unpack(fields)) -- at most 4,000: a page, and what a small hash has
  for at = 1, #flat, 2 do
    if flat[at] ~= '' then -- the sentinel
      local n = #found
      found[n + 1], found[n + 2] = flat[at], said[at] or ''
      found[n + 3], found[n + 4] = flat[at + 1], said[at + 1] or ''
    end
  end
  return {now, cursor, found}
end
