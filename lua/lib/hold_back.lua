-- The tag with which it is held. What was delivered before goes ahead of its shard key's others.
local function hold_back(tenant, key, handle, again)
  local child, tag = child_of(tenant, key), 0
  if child then
    tag = again and tenant.tag or math.max(child.last, tenant.tag) + 1
    child.held, child.last = child.held + 1, math.max(child.last, tag)
  end
  redis.call('ZADD', overflow, 0, member_of(tenant, key, handle, tag))
  tenant.held = tenant.held + 1
  return tag
end
