#!lua
-- configure: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1] meta: settings
-- KEYS[2] tenants: what each shard key holds
-- KEYS[3] journal: what happened to the messages
-- ARGV[1] epoch: for which the settings were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH' | 'BUSY' when `parents` changes while anything is accounted by the old rule
local meta, tenants, journal = KEYS[1], KEYS[2], KEYS[3]
--- @include lib/fence
local done = fenced(ARGV[1], ARGV[2])
if done then return done end
local busy = string.sub(redis.call('HGET', tenants, 'sum') or '0 0', 1, 2) ~= '0 '
for at = 3, #ARGV, 2 do
  local other = ARGV[at] == 'parents' and ARGV[at + 1] ~= (redis.call('HGET', meta, 'parents') or '0')
  if other and busy then return 'BUSY' end
end
local journaled = (redis.call('HGET', meta, 'journal') or '0') ~= '0'
for at = 3, #ARGV, 2 do
  -- What it held ends with it, and what happens until it is switched on again is missing: a number is left out.
  if ARGV[at] == 'journal' and not journaled then redis.call('HINCRBY', meta, 'events', 1) end
  if ARGV[at] == 'journal' and ARGV[at + 1] == '0' then redis.call('XTRIM', journal, 'MAXLEN', 0) end
  if ARGV[at] == 'max_in_flight' or ARGV[at] == 'parents' then redis.call('HINCRBY', meta, 'cap_no', 1) end
  if ARGV[at + 1] == '' then
    redis.call('HDEL', meta, ARGV[at])
  else
    redis.call('HSET', meta, ARGV[at], ARGV[at + 1])
  end
end
redis.call('HSET', meta, 'epoch', ARGV[2])
return 'OK'
