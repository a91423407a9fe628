-- The keys that a call declares. Every one exists at all times, since a missing key turns each call into TRYAGAIN while its slot
-- moves. So sorted sets, hashes and the set of cancelled messages keep a sentinel, a member that no reader ever sees.
local NEVER = 9e15

-- Creates these sorted sets where they are missing; the sentinel has this score. NEVER is later than any deadline.
local function create_sorted_sets(keys, score)
  for _, key in ipairs(keys) do redis.call('ZADD', key, 'NX', score, '') end
end

-- Creates these hashes where they are missing.
local function create_hashes(keys)
  for _, key in ipairs(keys) do redis.call('HSETNX', key, '', '') end
end

-- Fails if one of these keys has another type. Redis does not roll a script back, so a call looks at all keys that it may
-- touch before its first effect.
local function check_types(hashes, sorted_sets, streams)
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do redis.call('ZCARD', key) end
  for _, key in ipairs(streams) do redis.call('XLEN', key) end
end
