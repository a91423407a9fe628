#!lua flags=allow-oom
-- nack: give messages back, at once or after a delay; past max_deliveries they go to the dead letters.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] returned: handles that wait for another delivery, by turn
-- KEYS[8] bodies: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dead: dead letters
-- KEYS[12] moved: where redriven messages lie now
-- KEYS[13] accounts: what each shard key holds
-- KEYS[14] shard_keys: shard keys of what is delayed
-- KEYS[15] overflow: handles that wait for room
-- KEYS[16] journal: what happened to the messages
-- KEYS[17] due: when the buckets of the timed indexes are due
-- KEYS[18..] streams: the bodies' streams
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] max_deliveries: if the queue does not say how many; '0' sends them to the dead letters now (reject)
-- ARGV[3] max_dead: dead letters at most, if the queue does not say how many
-- ARGV[4] numbers: stream numbers of the declared streams, "3,17,l"
-- ARGV[5..] leases: three each: token, delay in ms, error or reason; at the end what the journal is told (lib/journal_told)
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled), d(ead)}
local meta, lens, ready, notifications, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local returned, later, attempts, cancelled, dead, moved = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local tenants, owners, overflow, journal, due, told = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], ARGV[#ARGV]
local repeated, rejected = ARGV[1] == '1', ARGV[2] == '0'
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/held
local kept = tonumber(state[6] or '0')
--- @include lib/journal
--- @include lib/journal_told
--- @include lib/deadlines_of
--- @include lib/stream_keys
--- @include lib/attempts_of
--- @include lib/note_attempts
--- @include lib/forget_cancelled
--- @include lib/check
local streams, fair = tonumber(state[3]), state[4] == '1'
waiting_until = tonumber(state[2])
--- @include lib/rules
--- @include lib/give_back
--- @include lib/admit
--- @include lib/end_leases
--- @include lib/note_all
--- @include lib/bury
--- @include lib/limits
local limits = limits_of(ARGV[2], ARGV[3])
local keys = stream_keys(ARGV[4], KEYS, 18)
keys['d'] = later
check({lens, attempts, moved, tenants, owners}, {ready, delayed, returned, overflow, due}, {notifications, later, dead})
for i = 18, #KEYS do redis.call('XLEN', KEYS[i]) end
--- @include lib/put_back
local letters, tokens, ended = {}, {}, {}
for at = 5, #ARGV - 1, 3 do tokens[#tokens + 1] = ARGV[at] end
local deadlines = deadlines_of(tokens)
for i, token in ipairs(tokens) do
  if is_live(deadlines[i]) then ended[#ended + 1] = token end
end
if #ended > 0 then redis.call('ZREM', leases, unpack(ended)) end -- at most 250: a chunk
local items, at_item = end_leases(ended, any_cancelled), 0
for i in ipairs(tokens) do
  -- A repeated call that finds no lease did its work the first time: the message is not the caller's either way.
  letters[i] = repeated and 'o' or 'l'
  if is_live(deadlines[i]) then
    at_item = at_item + 1
    local item = items[at_item]
    letters[i] = item and put_back(i, item, tonumber(ARGV[3 + 3 * i]), ARGV[4 + 3 * i]) or 'c'
  end
end
put_back_all()
if fair then close_accounts() end
if log then log.finish() end
return {now, table.concat(letters)}
