#!lua flags=allow-oom
-- purge: remove up to `most` undelivered and delayed messages; what is in flight stays. The call that finds nothing left
-- moves the epoch, so that no copy of a call that comes late removes what was written since.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] delayed: handles by due time in ms
-- KEYS[5] returned: handles that wait for another delivery, by turn
-- KEYS[6] bodies: bodies of delayed messages
-- KEYS[7] attempts: what is known of messages delivered before
-- KEYS[8] moved: where redriven messages lie now
-- KEYS[9] accounts: what each shard key holds
-- KEYS[10] shard_keys: shard keys of what is delayed
-- KEYS[11] overflow: handles that wait for room
-- KEYS[12] journal: what happened to the messages
-- KEYS[13..] streams: the declared ones
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: in this call
-- ARGV[4] numbers: stream numbers of the declared streams, "3,17,l"
-- ARGV[5] client: what the journal calls the caller
-- Reply: {'OK', how many were removed, 1 when there may be more} | {'NOQUEUE'} | {'EPOCH'}
local meta, lens, ready, delayed, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local later, attempts, moved = KEYS[6], KEYS[7], KEYS[8]
local tenants, owners, overflow, journal = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local most, removed, vanished = tonumber(ARGV[3]), 0, 0
--- @include lib/fence
local done = fenced(ARGV[1], ARGV[2])
if done then return {done, 0, 0} end
--- @include lib/stream_keys
--- @include lib/split_handle
--- @include lib/attributes
--- @include lib/check
check({meta, lens, attempts, moved, tenants, owners}, {ready, delayed, returned, overflow}, {later})
for i = 13, #KEYS do redis.call('XLEN', KEYS[i]) end
local keys = stream_keys(ARGV[4], KEYS, 13)
--- @include lib/server_ms
local state, now = redis.call('HMGET', meta, 'fair', 'journal'), server_ms()
local fair, kept = state[1] == '1', tonumber(state[2] or '0')
--- @include lib/journal
--- @include lib/rules
--- @include lib/tenants
--- @include lib/children
--- @include lib/owner_of
--- @include lib/withdraw_run
--- @include lib/runs
--- @include lib/call_walk
--- @include lib/places
keys['d'] = later
local function leave(fields)
  if not fair or fields[1] ~= 'K' then return end
  count_tenant(tenant_of(fields[2]), -1, 0)
end
local function remove(handle, in_line)
  local place, id = split_handle(handle)
  local body = redis.call('XRANGE', keys[place], id, id)[1]
  if in_line and body then leave(body[2]) end
  if log then log.body('g', place, id, body and body[2] or {}, 0) end
  local origin = body and string.match(attributes_of(body[2]), ' i(%S+)')
  if origin then redis.call('HDEL', moved, origin) end
  redis.call('XDEL', keys[place], id)
  redis.call('HDEL', attempts, handle)
  removed = removed + 1
end
--- @include lib/purge_stream
local more = false
for _, turn in ipairs(redis.call('ZRANGEBYSCORE', ready, 0, '+inf', 'LIMIT', 0, most)) do
  if keys[turn] and removed < most then
    more = true
    purge(turn)
  end
end
if removed < most then
  local handles = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(9000000000000000', 'LIMIT', 0, most - removed)
  for _, handle in ipairs(handles) do
    local place = split_handle(handle)
    if keys[place] then
      redis.call('ZREM', delayed, handle)
      owner_of(handle)
      remove(handle)
    end
  end
end
if fair then
--- @include lib/purge_overflow
  save_tenants()
  if held_back > 0 then call_walk() end -- should nobody go on, for whose messages in the streams are gone
end
redis.call('HINCRBY', meta, 'gone', removed + vanished)
redis.call('HINCRBY', meta, 'purged', removed)
redis.call('HINCRBY', meta, 'vanished', vanished)
if log then log.write(ARGV[5]) end
if removed > 0 then more = true end
if not more then redis.call('HSET', meta, 'epoch', ARGV[2]) end
return {'OK', removed, more and 1 or 0}
