#!lua flags=allow-oom
-- recover: a read's reply was lost; give back what its holder was granted, without counting that delivery.
-- KEYS[1] meta: who waits
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] returned: handles that wait for another delivery, by turn
-- KEYS[7] attempts: deliveries so far of what was given back
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] tenants: what each shard key holds
-- KEYS[10] owners: shard keys of what is in flight
-- KEYS[11] overflow: handles that wait for room
-- ARGV[1] holder: nonce of the lost read
-- ARGV[2] from: its leases end at this server time in ms or later
-- ARGV[3] visibility: ms that they last
-- Reply: how many were given back
local meta, lens, ready, notifications = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, returned, attempts, cancelled = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local tenants, owners, overflow = KEYS[9], KEYS[10], KEYS[11]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/split_token
--- @include lib/attempts_of
--- @include lib/note_attempts
--- @include lib/check
check({lens, attempts, tenants, owners}, {ready, returned, overflow}, {notifications})
redis.call('SCARD', cancelled)
local state = redis.call('HMGET', meta, 'waiting', 'streams', 'fair')
local streams, fair = tonumber(state[2]), state[3] == '1'
waiting_until = tonumber(state[1])
--- @include lib/rules
--- @include lib/give_back
--- @include lib/admit
--- @include lib/land
local found = 0
for _, token in ipairs(redis.call('ZRANGEBYSCORE', leases, ARGV[2], now + ARGV[3])) do
  if string.sub(token, -#ARGV[1]) == ARGV[1] then
    local place, id, deliveries = split_token(token)
    local handle = place .. ':' .. id
    local _, hand, last_error = attempts_of(handle)
    redis.call('ZREM', leases, token)
    local key = land(handle)
    if redis.call('SREM', cancelled, handle) == 1 then
      redis.call('HINCRBY', meta, 'gone', 1)
    else
      note_attempts(handle, deliveries - 1, hand, last_error)
      give_back(handle, place, hand, key)
      found = found + 1
    end
  end
end
if fair then close_accounts() end
return found
