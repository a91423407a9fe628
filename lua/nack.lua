#!lua flags=allow-oom
-- nack: give messages back, at once or after a delay; past max_deliveries they go to the dead letters.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] returned: handles that wait for another delivery, by turn
-- KEYS[8] later: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dead: dead letters
-- KEYS[12] moved: where redriven messages lie now
-- KEYS[13] tenants: what each shard key holds
-- KEYS[14] owners: shard keys of what is delayed
-- KEYS[15] overflow: handles that wait for room
-- KEYS[16] journal: what happened to the messages
-- KEYS[17..] streams: the bodies' streams
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] max_deliveries: '0' sends them to the dead letters now (reject)
-- ARGV[3] max_dead: dead letters at most
-- ARGV[4] numbers: stream numbers of the declared streams, "3,17,l"
-- ARGV[5..] leases: three each: token, delay in ms, error or reason; at the end what the journal is told (lib/journal_told)
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled), d(ead)}
local meta, lens, ready, notifications, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local returned, later, attempts, cancelled, dead, moved = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local tenants, owners, overflow, journal, told = KEYS[13], KEYS[14], KEYS[15], KEYS[16], ARGV[#ARGV]
local repeated, max_deliveries, max_dead = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3])
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/held
local kept = tonumber(state[6] or '0')
--- @include lib/journal
--- @include lib/journal_told
--- @include lib/deadlines_of
--- @include lib/stream_keys
--- @include lib/split_token
--- @include lib/attempts_of
--- @include lib/note_attempts
--- @include lib/bury
--- @include lib/forget_cancelled
--- @include lib/check
local streams, fair = tonumber(state[3]), state[4] == '1'
waiting_until = tonumber(state[2])
--- @include lib/rules
--- @include lib/give_back
--- @include lib/admit
--- @include lib/owner_of_lease
--- @include lib/land
local keys = stream_keys(ARGV[4], KEYS, 17)
keys['d'] = later
check({lens, attempts, moved, tenants, owners}, {ready, delayed, returned, overflow}, {notifications, later, dead})
for i = 17, #KEYS do redis.call('XLEN', KEYS[i]) end
--- @include lib/end_lease
local function put_back(i, token, delay, why)
  local place, id, deliveries = split_token(token)
  local handle = place .. ':' .. id
  local hand, key, last_error = owner_of_lease(token, handle)
  if not end_lease(token, handle, key) then return 'c' end
  why = why == '' and last_error or why
  if deliveries >= max_deliveries then
    local body = redis.call('XRANGE', keys[place], id, id)[1]
    if not body then return vanish(place, id) end
    local reason = max_deliveries == 0 and why or 'max deliveries'
    return bury(handle, place, id, keys[place], body[2], deliveries, reason, why) and 'd' or 'o'
  end
  note_attempts(handle, deliveries, hand, why, now + delay)
  if log then log.settled('n', i, place, id, deliveries, delay > 0 and now + delay) end
  if delay > 0 then
    redis.call('ZADD', delayed, now + delay, handle)
    if key then redis.call('HSET', owners, handle, key) end
    if delay < 5000 then notify('') end
    return 'o'
  end
  give_back(handle, place, hand, key)
  return 'o'
end

local letters, tokens = {}, {}
for at = 5, #ARGV - 1, 3 do tokens[#tokens + 1] = ARGV[at] end
local deadlines = deadlines_of(tokens)
for i, token in ipairs(tokens) do
  local at = 2 + 3 * i
  -- A repeated call that finds no lease did its work the first time: the message is not the caller's either way.
  letters[i] = repeated and 'o' or 'l'
  if is_live(deadlines[i]) then letters[i] = put_back(i, token, tonumber(ARGV[at + 1]), ARGV[at + 2]) end
end
if fair then close_accounts() end
if log then log.finish() end
return {now, table.concat(letters)}
