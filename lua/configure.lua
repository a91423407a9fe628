#!lua
-- configure: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1] meta: settings
-- ARGV[1..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE'
local meta = KEYS[1]
if redis.call('HEXISTS', meta, 'epoch') == 0 then return 'NOQUEUE' end
for at = 1, #ARGV, 2 do
  if ARGV[at] == 'max_in_flight' then redis.call('HINCRBY', meta, 'cap_no', 1) end
  if ARGV[at + 1] == '' then
    redis.call('HDEL', meta, ARGV[at])
  else
    redis.call('HSET', meta, ARGV[at], ARGV[at + 1])
  end
end
redis.call('HINCRBY', meta, 'epoch', 1)
return 'OK'
