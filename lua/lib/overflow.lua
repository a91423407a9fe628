-- The overflow is one sorted set with a run of members for each shard key (or parent): "length:key:tag:order:handle",
-- of a child also its own key. A run is in the order of writing; the children of a parent take turns by their tags
-- (start-time fair queueing: Goyal, Vin, Cheng 1996).
--- @include lib/children
local function member_of(tenant, key, handle, tag)
  local order = string.match(handle, '%-(%d+)$')
  local child = key ~= tenant.name and ' ' .. key or ''
  -- Not in the format: there %s ends at a zero byte.
  return #tenant.name .. ':' .. tenant.name .. string.format(':%015.0f:%015.0f:', tag, order) .. handle .. child
end
