#!lua flags=allow-oom
-- remember: write down what a streaming query holds, and by when it is forgotten. Both at once: a query that died between the
-- two would leave a key for ever.
-- KEYS[1..] holds: that of the query
-- ARGV[1] field: number of a micro-batch, or the name of another field
-- ARGV[2] record: of its leases, or what that field has
-- ARGV[3] keep: for how many ms
-- ARGV[4] dropped: the field that this one takes the place of, '' if none
-- Reply: 'OK'
local hold, field, record, keep, dropped = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
redis.call('HSET', hold, field, record) -- fails before anything has changed if this is no hash
if dropped ~= '' then redis.call('HDEL', hold, dropped) end
redis.call('PEXPIRE', hold, keep)
return 'OK'
