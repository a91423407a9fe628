#!lua
-- redrive: move dead letters back, to the store of delayed messages, due at once; ids and headers stay.
-- KEYS[1] meta: id clock, counters, who waits
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] returned: handles that wait for another delivery, by turn
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: the streams they may be promoted to
-- KEYS[8] dead: dead letters
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] accounts: what each shard key holds
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] journal: what happened to the messages
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] client: what the journal calls the caller
-- ARGV[3..] letters: three each: entry id in `dead`, message id, streams of the shard "3,17"
-- Reply: how many moved; an entry that is gone already or no letter is passed over, so a repeated call does nothing but count them
local meta, lens, ready, notifications, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, attempts, dead, moved = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local tenants, overflow, journal = KEYS[10], KEYS[11], KEYS[12]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/note_all
--- @include lib/check
--- @include lib/most_fields
check({lens, attempts, moved, tenants}, {ready, returned, overflow}, {notifications, later, dead})
local state = redis.call('HMGET', meta, 'n', 'ms', 'waiting', 'streams', 'fair', 'journal')
local ms, fair, kept = math.max(now, tonumber(state[2])), state[5] == '1', tonumber(state[6] or '0')
--- @include lib/journal
local streams, count, last = tonumber(state[4]), 0, tonumber(state[1])
waiting_until = tonumber(state[3])
--- @include lib/rules
--- @include lib/give_back
local back = {}
for at = 3, #ARGV, 3 do
  local letter = redis.call('XRANGE', dead, ARGV[at], ARGV[at])[1]
  if letter and letter[2][1] == 'i' and #letter[2] >= 12 and #letter[2] <= MOST_FIELDS then
    local fields, body = letter[2], {}
    last, count = last + 1, count + 1
    local id = string.format('%.0f-%.0f', ms, last)
    for i = 9, 12 do body[#body + 1] = fields[i] end
    -- attributes: deadline and due time are over; the id that the writer was given and the deliveries so far stay
    body[5], body[6] = 'm', ' i' .. fields[2] .. ' c' .. fields[6]
    for i = fields[13] == 'm' and 15 or 13, #fields do body[#body + 1] = fields[i] end
    redis.call('XADD', later, id, unpack(body)) -- at most 7,000: MOST_FIELDS
    redis.call('XDEL', dead, ARGV[at])
    redis.call('HSET', moved, fields[2], 'd:' .. id)
    if log then log.note('v', fields[2], body[2], fields[6]) end
    back[#back + 1] =
      {'d:' .. id, 'd', ARGV[at + 2], false, false, true, fair and body[1] == 'K' and body[2], ms, last, 0, fields[8]}
  elseif ARGV[1] == '1' then
    count = count + redis.call('HEXISTS', moved, ARGV[at + 1])
  end
end
note_all(back)
give_back_all(back)
redis.call('HINCRBY', meta, 'redriven', last - tonumber(state[1]))
redis.call('HSET', meta, 'n', string.format('%.0f', last), 'ms', string.format('%.0f', ms))
if log then log.write(ARGV[2]) end
if fair then
  save_tenants()
  save_places()
end
return count
