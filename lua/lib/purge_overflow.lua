-- What is held back, run by run.
for _, member in ipairs(redis.call('ZRANGEBYLEX', overflow, '(', '+', 'LIMIT', 0, most - removed)) do
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local name = string.sub(rest, 1, size)
  local handle, key = string.match(string.sub(rest, size + 2), '^%d+:%d+:(%S+) ?(.*)$')
  local tenant = tenant_of(name)
  tenant.held = math.max(0, tenant.held - 1)
  local child = key ~= '' and child_of(tenant, key)
  if child then child.held = math.max(0, child.held - 1) end
  redis.call('ZREM', overflow, member)
  remove(handle)
end
