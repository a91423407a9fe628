#!lua flags=allow-oom
-- recover: a read's reply was lost; give back what its holder was granted, without counting that delivery.
-- Those leases end at one instant, late among all: looked for from the latest end on, a page in each call.
-- KEYS[1] meta: who waits
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] returned: handles that wait for another delivery, by turn
-- KEYS[7] attempts: deliveries so far of what was given back
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] tenants: what each shard key holds
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] later: bodies of delayed messages
-- KEYS[13] journal: what happened to the messages
-- ARGV[1] holder: nonce of the lost read, or one whole token
-- ARGV[2] from: its leases end at this server time in ms or later
-- ARGV[3] visibility: ms that they last
-- ARGV[4] page: look at so many leases
-- ARGV[5] last: those that end at this server time or earlier; '' in the first call
-- ARGV[6] client: what the journal calls the caller
-- Reply: the next call's `last`, '' when there is no more to look for. The same again: take a larger page
local meta, lens, ready, notifications = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, returned, attempts, cancelled, moved = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local tenants, overflow, later, journal = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/split_token
--- @include lib/attempts_of
--- @include lib/note_attempts
--- @include lib/check
check({lens, attempts, moved, tenants}, {ready, returned, overflow}, {notifications, later})
redis.call('SCARD', cancelled)
local state = redis.call('HMGET', meta, 'waiting', 'streams', 'fair', 'journal')
local streams, fair, kept = tonumber(state[2]), state[3] == '1', tonumber(state[4] or '0')
--- @include lib/journal
--- @include lib/forget_cancelled
waiting_until = tonumber(state[1])
--- @include lib/rules
--- @include lib/give_back
--- @include lib/admit
--- @include lib/land
--- @include lib/owner_of_lease
local given_up, last_asked = ARGV[1], ARGV[5]
--- @include lib/give_up
local last = ARGV[5] ~= '' and ARGV[5] or now + ARGV[3]
local page = redis.call('ZREVRANGEBYSCORE', leases, last, ARGV[2], 'WITHSCORES', 'LIMIT', 0, ARGV[4])
local found
for at = 1, #page, 2 do
  local token = page[at]
  if token == ARGV[1] or string.match(token, '^%w+:[%d-]+:%d+:([^:]*)') == ARGV[1] then
    local place, id, deliveries = split_token(token)
    local handle = place .. ':' .. id
    local hand, key, last_error = owner_of_lease(token, handle)
    found = page[at + 1]
    redis.call('ZREM', leases, token)
    land(key)
    if redis.call('SREM', cancelled, handle) == 1 then
      forget_cancelled(handle)
    else
      -- Of a message that was never delivered nothing is known, and nothing must stay behind when it is acked.
      if deliveries > 1 or hand ~= '' then note_attempts(handle, deliveries - 1, hand, last_error) end
      if log then log.lease('u', place, id, deliveries - 1, key) end
      give_back(handle, place, hand, key)
    end
  end
end
if fair then close_accounts() end
if log then log.write(ARGV[6]) end
return (#page < 2 * ARGV[4] or found and found ~= page[#page]) and '' or page[#page]
