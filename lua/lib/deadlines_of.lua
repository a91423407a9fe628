-- When the leases of these tokens end; false for one that is none.
local function deadlines_of(tokens)
  local deadlines = #tokens > 0 and redis.call('ZMSCORE', leases, unpack(tokens)) or {} -- at most 500: a chunk
  local seen = {}
  for i, token in ipairs(tokens) do
    -- The same token twice in one call: the second comes after the first has ended the lease.
    if seen[token] then deadlines[i] = false end
    seen[token] = true
  end
  return deadlines
end
