#!lua
-- configure: change settings of a queue; the epoch moves so that every client looks them up again.
-- KEYS[1] meta: settings
-- KEYS[2] journal: what happened to the messages
-- ARGV[1..] settings: name, value, ...; an empty value unsets
-- Reply: 'OK' | 'NOQUEUE'
local meta, journal = KEYS[1], KEYS[2]
if redis.call('HEXISTS', meta, 'epoch') == 0 then return 'NOQUEUE' end
local journaled = (redis.call('HGET', meta, 'journal') or '0') ~= '0'
for at = 1, #ARGV, 2 do
  -- What it held ends with it, and what happens until it is switched on again is missing: a number is left out.
  if ARGV[at] == 'journal' and not journaled then redis.call('HINCRBY', meta, 'events', 1) end
  if ARGV[at] == 'journal' and ARGV[at + 1] == '0' then redis.call('XTRIM', journal, 'MAXLEN', 0) end
  if ARGV[at] == 'max_in_flight' then redis.call('HINCRBY', meta, 'cap_no', 1) end
  if ARGV[at + 1] == '' then
    redis.call('HDEL', meta, ARGV[at])
  else
    redis.call('HSET', meta, ARGV[at], ARGV[at + 1])
  end
end
redis.call('HINCRBY', meta, 'epoch', 1)
return 'OK'
