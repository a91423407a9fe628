#!lua flags=allow-oom
-- touch: move the expiry of all of a queue's keys together, so that none outlives another. The queue says by how much: a
-- call that comes late, after the setting was taken away, must not let the queue expire.
-- KEYS[1] meta: where the queue begins
-- KEYS[2..] keys: every other key of the queue
-- Reply: how many keys there are
local meta = KEYS[1]
local ttl, keys = tonumber(redis.call('HGET', meta, 'ttl') or '0'), redis.call('EXISTS', meta)
for i = 1, #KEYS do
  if ttl > 0 then
    keys = keys + redis.call('PEXPIRE', KEYS[i], ttl)
  else
    redis.call('PERSIST', KEYS[i])
  end
end
return keys
