#!lua flags=allow-oom
-- remember: write down what a streaming query holds, and by when it is forgotten. Both at once: a query that died between the
-- two would leave a key for ever.
-- KEYS[1..] holds: that of the query
-- ARGV[1] batch: number of the micro-batch
-- ARGV[2] record: of its leases
-- ARGV[3] keep: for how many ms
-- Reply: 'OK'
local hold, batch, record, keep = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
redis.call('HSET', hold, batch, record) -- fails before anything has changed if this is no hash
redis.call('PEXPIRE', hold, keep)
return 'OK'
