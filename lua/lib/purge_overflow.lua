-- What is held back, run by run.
while removed < most do
  local member = redis.call('ZRANGEBYLEX', overflow, '(', '(t', 'LIMIT', 0, 1)[1]
  if not member then break end
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local key, items = string.sub(rest, 1, size), {}
  withdraw_run(key, most - removed, items)
  save_overflow()
  local tenant = tenant_of(key)
  count_tenant(tenant, 0, -math.min(tenant.held, #items))
  if parents then count_child(tenant, key, -#items, 0) end
  for _, item in ipairs(items) do remove(item[1]) end
end
