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

-- Creates the hash `dedup` where it is missing. Its sentinel says since when it remembers, in ms: since the queue was created, or
-- since it was lost.
local function create_dedup(key, now)
  redis.call('HSETNX', key, '', now)
end

-- Fails if one of these keys has another type. Redis does not roll a script back, so a call looks at all keys that it may
-- touch before its first effect.
local function check_types(hashes, sorted_sets, streams)
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do redis.call('ZCARD', key) end
  for _, key in ipairs(streams) do redis.call('XLEN', key) end
end

-- Looks at the keys that a read may change but for the streams, before its first effect.
local function check_read_keys(q)
  check_types({q.attempts, q.moved, q.accounts, q.shard_keys}, {q.overflow}, {q.notifications, q.bodies, q.dead})
end

-- Looks at the keys that a read may change, once, before its first effect. A read of one message changes only the stream that
-- it takes from, which has this number; any other read may change all that it declared. The caller has read `returned`,
-- `leases` and `delayed`, and if it takes from a stream, `lens` and `ready`.
local function check_read_types(q, number)
  if q.is_checked then return end
  q.is_checked = true
  if not number then check_types({q.lens}, {q.ready}, {}) end
  check_read_keys(q)
  local only = number and q.count == 1 and q.streams[number]
  if only then
    redis.call('XLEN', only)
  else
    for _, key in pairs(q.streams) do redis.call('XLEN', key) end
  end
end
