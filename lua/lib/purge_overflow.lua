-- What is held back, run by run.
while removed < most do
  local key, items = next_run(FIRST_RUN), {}
  if not key then break end
  withdraw_run(key, most - removed, items)
  save_overflow()
  local tenant = tenant_of(key)
  count_tenant(tenant, 0, -math.min(tenant.held, #items))
  if parents then count_child(tenant, key, -#items, 0) end
  for _, item in ipairs(items) do remove(item[1]) end
end
