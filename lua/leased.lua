#!lua flags=no-writes
-- leased: how many messages of each shard key are in flight, of a page of the leases. Those that do not count are left out.
-- KEYS[1] leases: tokens by deadline
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many leases to look at
-- Reply: {cursor to go on from, '0' at the end; {shard key, number, ...}}
--- @use leases
local leases, cursor, count = KEYS[1], ARGV[1], ARGV[2]
local page, numbers, found = redis.call('ZSCAN', leases, cursor, 'COUNT', count), {}, {}
local tokens = page[2]
for at = 1, #tokens, 2 do
  local _, shard_key = split_owner(tokens[at])
  if shard_key then numbers[shard_key] = (numbers[shard_key] or 0) + 1 end
end
for shard_key, number in pairs(numbers) do found[#found + 1], found[#found + 2] = shard_key, number end
return {page[1], found}
