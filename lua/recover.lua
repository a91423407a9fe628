#!lua flags=allow-oom
-- recover: a read's reply was lost; give back what its holder was granted, without counting that delivery.
-- Those leases end at one instant, late among all: looked for bucket by bucket, from the latest end on, until that is known.
-- KEYS[1] meta: who waits
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] returned: handles that wait for another delivery, by turn
-- KEYS[7] attempts: deliveries so far of what was given back
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] accounts: what each shard key holds
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] bodies: bodies of delayed messages
-- KEYS[13] journal: what happened to the messages
-- KEYS[14] due: when the buckets of the timed indexes are due
-- ARGV[1] holder: nonce of the lost read, '' when whole tokens follow
-- ARGV[2] from: its leases end at this server time in ms or later
-- ARGV[3] visibility: ms that they last
-- ARGV[4] page: look at so many leases
-- ARGV[5] where: to go on, as the last call replied; '' in the first one
-- ARGV[6] client: what the journal calls the caller
-- ARGV[7..] tokens: what to give back, where it is known
-- Reply: the next call's `where`, '' when there is no more to look for. The same again: take a larger page
local meta, lens, ready, notifications = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, returned, attempts, cancelled, moved = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local tenants, overflow, later, journal, due = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/attempts_of
--- @include lib/check
check({lens, attempts, moved, tenants}, {ready, returned, overflow, due}, {notifications, later})
local any_cancelled = redis.call('SCARD', cancelled) > 1
local state = redis.call('HMGET', meta, 'waiting', 'streams', 'fair', 'journal')
local streams, fair, kept = tonumber(state[2]), state[3] == '1', tonumber(state[4] or '0')
--- @include lib/journal
--- @include lib/forget_cancelled
waiting_until = tonumber(state[1])
--- @include lib/rules
--- @include lib/give_back
--- @include lib/admit
--- @include lib/end_leases
--- @include lib/note_all
--- @include lib/granted_to
local given_up, last_asked = ARGV[1], ARGV[5]
local tokens, where = {}, ''
if given_up ~= '' then
--- @include lib/give_up
  tokens, where = granted_to(given_up, last_asked, tonumber(ARGV[4]), tonumber(ARGV[2]), now + ARGV[3])
elseif #ARGV > 6 then
  for i = 7, #ARGV do
    if redis.call('ZSCORE', leases, ARGV[i]) then tokens[#tokens + 1] = ARGV[i] end
  end
end
if #tokens > 0 then redis.call('ZREM', leases, unpack(tokens)) end -- at most 250: what one read was granted, or a chunk
local back, noted = {}, {}
for _, item in ipairs(end_leases(tokens, any_cancelled)) do
  if item then
    item[10], back[#back + 1] = item[10] - 1, item
    -- Of a message that was never delivered nothing is known, and nothing must stay behind when it is acked.
    if item[10] > 0 or item[3] ~= '' then noted[#noted + 1] = item end
    if log then log.lease('u', item[2], string.match(item[1], ':(.*)$'), item[10], item[7] or nil) end
  end
end
note_all(noted)
give_back_all(back)
if fair then close_accounts() end
if log then log.write(ARGV[6]) end
return where
