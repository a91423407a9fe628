#!lua
-- configure: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1] meta: settings
-- KEYS[2] tenants: what each shard key holds
-- ARGV[1..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE' | 'BUSY' when `parents` changes while anything is accounted by the old rule
local meta, tenants = KEYS[1], KEYS[2]
if redis.call('HEXISTS', meta, 'epoch') == 0 then return 'NOQUEUE' end
local busy = string.sub(redis.call('HGET', tenants, 'sum') or '0 0', 1, 2) ~= '0 '
for at = 1, #ARGV, 2 do
  local other = ARGV[at] == 'parents' and ARGV[at + 1] ~= (redis.call('HGET', meta, 'parents') or '0')
  if other and busy then return 'BUSY' end
end
for at = 1, #ARGV, 2 do
  if ARGV[at] == 'max_in_flight' or ARGV[at] == 'parents' then redis.call('HINCRBY', meta, 'cap_no', 1) end
  if ARGV[at + 1] == '' then
    redis.call('HDEL', meta, ARGV[at])
  else
    redis.call('HSET', meta, ARGV[at], ARGV[at + 1])
  end
end
redis.call('HINCRBY', meta, 'epoch', 1)
return 'OK'
