#!lua
-- weigh: give shard keys another weight. All of them are also kept as one text, "weight:length:key" of each. The epoch
-- moves only so that a late copy of this call changes nothing.
-- KEYS[1] meta: how many have a weight
-- KEYS[2] tenants: what each shard key holds, and its weight
-- KEYS[3] notifications: wakes blocked readers
-- ARGV[1] epoch: which the caller knows
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: so many may have one
-- ARGV[4..] changes: shard key, weight, ...; 1 is every shard key's and kept of none
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'FULL' when they would be too many: nothing is changed
local meta, tenants, notifications = KEYS[1], KEYS[2], KEYS[3]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/check
--- @include lib/call_walk
--- @include lib/fence
check({meta, tenants}, {}, {notifications})
local done = fenced(ARGV[1], ARGV[2])
if done then return done end
waiting_until = tonumber(redis.call('HGET', meta, 'waiting') or '0')
local known, at, size = redis.call('HGET', tenants, 'weights') or '', 1, 0
local weights, keys = {}, {}
while at <= #known do
  local weight, length, from = string.match(known, '^(%d+):(%d+):()', at)
  local key = string.sub(known, from, from + length - 1)
  weights[key], keys[#keys + 1], at = weight, key, from + length
end
for i = 4, #ARGV, 2 do
  if not weights[ARGV[i]] then keys[#keys + 1] = ARGV[i] end
  weights[ARGV[i]] = ARGV[i + 1]
end
local parts = {}
for _, key in ipairs(keys) do
  if weights[key] ~= '1' then
    parts[#parts + 1], size = weights[key] .. ':' .. #key .. ':' .. key, size + 1
  end
end
if size > tonumber(ARGV[3]) then return 'FULL' end
for i = 4, #ARGV, 2 do
  if weights[ARGV[i]] == '1' then
    redis.call('HDEL', tenants, 'w:' .. ARGV[i])
  else
    redis.call('HSET', tenants, 'w:' .. ARGV[i], weights[ARGV[i]])
  end
end
redis.call('HSET', tenants, 'weights', table.concat(parts))
redis.call('HSET', meta, 'weighted', size, 'epoch', ARGV[2])
if not string.match(redis.call('HGET', tenants, 'sum') or '0 0', '^%d+ 0') then
  call_walk()
  notify('')
end
return 'OK'
