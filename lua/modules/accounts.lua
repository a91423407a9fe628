-- The accounts of shard keys in the hash `tenants`: what each of them has in the queue.

-- Reads how many shard keys are active, and how many messages are held in overflows.
local function read_sum(q)
  local active, held = string.match(redis.call('HGET', q.tenants, 'sum') or '0 0', '^(%d+) (%d+)')
  return tonumber(active), tonumber(held)
end
