#!lua flags=allow-oom
-- cancel: remove a waiting or delayed message wherever it is; mark one that is in flight.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] returned: handles that wait for another delivery, by turn
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] cancelled: handles cancelled while in flight
-- KEYS[9] moved: where redriven messages lie now
-- KEYS[10] notifications: wakes blocked readers
-- KEYS[11] accounts: what each shard key holds
-- KEYS[12] shard_keys: shard keys of what is delayed
-- KEYS[13] overflow: handles that wait for room
-- KEYS[14] journal: what happened to the messages
-- KEYS[15..] streams: the stream that the id names, unless it names the store
-- ARGV[1] message_id: as write returned it
-- ARGV[2] place: the last part of the id
-- ARGV[3] id: the rest of it
-- ARGV[4] client: what the journal calls the caller
-- Reply: 'removed' | 'in flight' | 'unknown'
local meta, lens, ready, delayed, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, attempts, cancelled, moved = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local notifications, tenants, owners, overflow = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local journal, body_key = KEYS[14], KEYS[15]
local message_id, place, id = ARGV[1], ARGV[2], ARGV[3]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/split_handle
--- @include lib/check
check({meta, lens, attempts, moved, tenants, owners}, {ready, delayed, returned, overflow}, {body_key, later})
local state = redis.call('HMGET', meta, 'waiting', 'streams', 'fair', 'journal')
local streams, fair, kept = tonumber(state[2]), state[3] == '1', tonumber(state[4] or '0')
--- @include lib/journal
waiting_until = tonumber(state[1])
--- @include lib/rules
--- @include lib/counts
--- @include lib/tenants
--- @include lib/room
--- @include lib/admit
--- @include lib/pull
--- @include lib/owner_of
local now_at = redis.call('HGET', moved, message_id)
if now_at then place, id = split_handle(now_at) end
if place == 'd' then body_key = later end
local handle = place .. ':' .. id
--- @include lib/is_past
--- @include lib/journal_cancel
-- Whether a message that counts was held back; then it is no more.
local function is_held(key)
  if not pull(key, place, string.match(id, '%d+$')) then return false end
  local tenant = tenant_of(key)
  count_tenant(tenant, 0, tenant.held > 0 and -1 or 0)
  if parents then count_child(tenant, key, -1, 0) end
  return true
end
local line = redis.call('ZSCORE', returned, handle)
local is_delayed = redis.call('ZSCORE', delayed, handle)
-- An entry of the legacy stream is a message only once it was handed out; then something is known of it.
if place == 'l' and redis.call('HEXISTS', attempts, handle) == 0 then return 'unknown' end
if redis.call('SISMEMBER', cancelled, handle) == 1 then return 'in flight' end
local body = redis.call('XRANGE', body_key, id, id)[1]
if not body then return 'unknown' end
local fields = body[2]
local counts = fair and fields[1] == 'K'
local is_new = place ~= 'd' and place ~= 'l' and not is_past()

redis.call('XDEL', body_key, id)
redis.call('HINCRBY', meta, 'cancelled', 1)
if line or is_new then
  local turn = line and string.format('%.0f', math.floor(line / PLACES)) or place
  redis.call('ZREM', returned, handle)
  if redis.call('HINCRBY', lens, turn, -1) <= 0 then redis.call('ZREM', ready, turn) end
  if counts then count_tenant(tenant_of(fields[2]), -1, 0) end
elseif is_delayed then
  redis.call('ZREM', delayed, handle)
  owner_of(handle)
elseif not counts or not is_held(fields[2]) then
  redis.call('SADD', cancelled, handle)
  if now_at then redis.call('HSET', attempts, handle, '0|| i' .. message_id) end -- see lib/forget_cancelled
  tell('k', fields)
  return 'in flight'
end
tell('c', fields)
if now_at then redis.call('HDEL', moved, message_id) end
redis.call('HINCRBY', meta, 'gone', 1)
redis.call('HDEL', attempts, handle)
if counts then close_accounts() end
return 'removed'
