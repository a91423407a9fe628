#!lua flags=no-writes
-- weights: the weights of shard keys, as `weigh` keeps them.
-- KEYS[1] accounts: what each shard key holds, and its weight
-- Reply: "weight:length:key" of each, joined
local accounts = KEYS[1]
return redis.call('HGET', accounts, 'weights') or ''
