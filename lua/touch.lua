#!lua flags=allow-oom
-- touch: move the expiry of all of a queue's keys together, so that none outlives another.
-- KEYS[1] meta: where the queue begins
-- KEYS[2..] keys: every other key of the queue
-- ARGV[1] ttl: ms from now, 0 = never expires
-- Reply: how many keys there are
local meta = KEYS[1]
local ttl, found = tonumber(ARGV[1]), redis.call('EXISTS', meta)
for i = 1, #KEYS do
  if ttl > 0 then
    found = found + redis.call('PEXPIRE', KEYS[i], ttl)
  else
    redis.call('PERSIST', KEYS[i])
  end
end
return found
