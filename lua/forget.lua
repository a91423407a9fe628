#!lua
-- forget: drop what was counted in flight under an earlier cap, of some shard keys in each call.
-- KEYS[1] meta: number of the present cap
-- KEYS[2] tenants: what each shard key holds
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: cursor to go on from, '0' at the end
local meta, tenants = KEYS[1], KEYS[2]
local since = redis.call('HGET', meta, 'cap_no')
local found = redis.call('HSCAN', tenants, ARGV[1], 'MATCH', 'f:*', 'COUNT', ARGV[2])
for at = 1, #found[2], 2 do
  if string.match(found[2][at + 1], '^%d+') ~= since then redis.call('HDEL', tenants, found[2][at]) end
end
return found[1]
