#!lua flags=allow-oom
-- register: add a queue to the list of queues, or take it out.
-- KEYS[1] queues: names of queues
-- ARGV[1] verb: '+' | '-'
-- ARGV[2] name: of the queue
-- Reply: 1 if that changed the list, else 0
local queues, verb, name = KEYS[1], ARGV[1], ARGV[2]
if verb == '+' then return redis.call('ZADD', queues, 0, name) end
return redis.call('ZREM', queues, name)
