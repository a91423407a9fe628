#!lua
-- configure: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1] meta: settings
-- KEYS[2] tenants: what each shard key holds
-- KEYS[3] journal: what happened to the messages
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] owners: shard keys of what is delayed
-- ARGV[1] epoch: for which the settings were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'BUSY' when `parents` changes while anything is accounted by the old rule
local meta, tenants, journal, notifications, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/check
--- @include lib/call_walk
--- @include lib/fence
check({meta, tenants, owners}, {}, {journal, notifications})
local done = fenced(ARGV[1], ARGV[2])
if done then return done end
local state = redis.call('HMGET', meta, 'waiting', 'parents', 'max_in_flight', 'journal')
waiting_until = tonumber(state[1])
local changes = {}
for at = 3, #ARGV, 2 do changes[ARGV[at]] = ARGV[at + 1] end
local function differs(name, was) return changes[name] and changes[name] ~= was end
local active, held = string.match(redis.call('HGET', tenants, 'sum') or '0 0', '^(%d+) (%d+)')
local split = differs('parents', state[2] or '0')
if split and (active ~= '0' or redis.call('HLEN', owners) > 1) then return 'BUSY' end
-- What it held ends with it, and what happens until it is switched on again is missing: a number is left out.
if changes.journal and (state[4] or '0') == '0' then redis.call('HINCRBY', meta, 'events', 1) end
if changes.journal == '0' then redis.call('XTRIM', journal, 'MAXLEN', 0) end
-- While there is no cap nobody counts what is in flight, so what was counted before must count no more (see `forget`).
local switched = changes.max_in_flight and (changes.max_in_flight ~= '0') ~= ((state[3] or '0') ~= '0')
if split or switched then redis.call('HINCRBY', meta, 'cap_no', 1) end
for name, value in pairs(changes) do
  if value == '' then
    redis.call('HDEL', meta, name)
  else
    redis.call('HSET', meta, name, value)
  end
end
redis.call('HSET', meta, 'epoch', ARGV[2])
if held ~= '0' then
  call_walk()
  notify('')
end
return 'OK'
