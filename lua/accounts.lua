#!lua flags=no-writes
-- accounts: a page of the shard keys (or parents) that have anything undelivered or delayed.
-- KEYS[1] meta: whether the queue knows its shard keys
-- KEYS[2] accounts: what each of them holds
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: {} when there is no such queue | {'PLAIN'} when it does not know its shard keys |
--        {cursor to go on from, '0' at the end; {'t:' and the name, account, ...}}
local meta, accounts, cursor, count = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local exists, fair = unpack(redis.call('HMGET', meta, 'epoch', 'fair')) -- at most 2: the fields
if not exists then return {} end
if fair ~= '1' then return {'PLAIN'} end
return redis.call('HSCAN', accounts, cursor, 'MATCH', 't:*', 'COUNT', count)
