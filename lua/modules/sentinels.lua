-- Sentinels: every declared key exists at all times, since a missing one turns each call into TRYAGAIN while its slot moves. So
-- sorted sets, hashes and the set of cancelled messages keep a member that no reader ever sees.
local NEVER = 9e15

-- Creates these sorted sets where they are missing; the sentinel has this score. NEVER is later than any deadline.
local function create_sorted_sets(keys, score)
  for _, key in ipairs(keys) do redis.call('ZADD', key, 'NX', score, '') end
end

-- Creates these hashes where they are missing.
local function create_hashes(keys)
  for _, key in ipairs(keys) do redis.call('HSETNX', key, '', '') end
end
