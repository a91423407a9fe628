#!lua
-- forget: drop what was counted in flight under an earlier cap, of some shard keys in each call.
-- KEYS[1] meta: number of the present cap
-- KEYS[2] accounts: what each shard key holds
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many fields to look at
-- Reply: cursor to go on from, '0' at the end
local meta, accounts, cursor, count = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local present_cap = redis.call('HGET', meta, 'cap_no')
local found = redis.call('HSCAN', accounts, cursor, 'MATCH', 'f:*', 'COUNT', count)
local next_cursor, fields = found[1], found[2]
for at = 1, #fields, 2 do
  local field, in_flight = fields[at], fields[at + 1]
  if string.match(in_flight, '^%d+') ~= present_cap then redis.call('HDEL', accounts, field) end
end
return next_cursor
