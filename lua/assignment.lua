#!lua flags=no-writes
-- assignment: which shard keys have which shards.
-- KEYS[1] meta: epoch and reach of the assignment
-- KEYS[2] assigned: shards by shard key
-- Reply: {epoch of the last change or '', reach, {shard key, shard, ..., '', rule}}
local meta, assigned = KEYS[1], KEYS[2]
local epoch, reach = unpack(redis.call('HMGET', meta, 'assigned', 'reach')) -- at most 2: the fields
return {epoch or '', tonumber(reach or '0'), redis.call('HGETALL', assigned)}
