-- Which of these tokens still hold their lease. A lease ends at its deadline by the server's clock, reaped or not;
-- while reaping is paused (the clock ran ahead), being in the index is enough.
local held_until = tonumber(redis.call('HGET', meta, 'hold') or '0')
local any_cancelled = redis.call('SCARD', cancelled) > 1
local function is_live(deadline)
  return deadline and (tonumber(deadline) > now or held_until > now)
end
local function deadlines_of(tokens)
  local deadlines = #tokens > 0 and redis.call('ZMSCORE', leases, unpack(tokens)) or {}
  local seen = {}
  for i, token in ipairs(tokens) do
    -- The same token twice in one call: the second comes after the first has ended the lease.
    if seen[token] then deadlines[i] = false end
    seen[token] = true
  end
  return deadlines
end
