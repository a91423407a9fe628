-- The mark behind meta's `weighted`: '+' says that the queue has limits, so that no call takes its straight part.

-- Writes the mark down, as the rest of meta says.
local function save_mark(q)
  local weighted, limited, rate, cap, total_rate, paused = unpack( -- at most 6: the fields
    redis.call('HMGET', q.meta, 'weighted', 'limited', 'rate', 'total_in_flight', 'total_rate', 'paused'))
  local has_limits = (limited or '0') ~= '0' or (rate or '0') ~= '0' or (cap or '0') ~= '0' or (total_rate or '0') ~= '0' or paused
  local weights = string.match(weighted or '0', '^%d+') or '0'
  redis.call('HSET', q.meta, 'weighted', has_limits and weights .. '+' or weights)
end
