#!lua flags=no-writes
-- runs: of some shard keys that have something in their overflow, since when the first message there has been deliverable.
-- KEYS[1] overflow: what is held back
-- KEYS[2] attempts: since when those wait that were given back
-- ARGV[1] from: the place to go on from, '(' to start
-- ARGV[2] count: of shard keys
-- Reply: {the place to go on from, '' at the end; {shard key, time in ms, ...}}
--- @use ages
local q, from, found = {overflow = KEYS[1], attempts = KEYS[2]}, ARGV[1], {}
for _ = 1, tonumber(ARGV[2]) do
  local shard_key, since, after = read_run_head(q, from)
  if not shard_key then return {'', found} end
  found[#found + 1], found[#found + 2], from = shard_key, since, after
end
return {from, found}
