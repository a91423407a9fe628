-- Nothing is left in the shared streams, so whatever the counts say (somebody deleted entries by hand), nobody holds
-- anything there: let in what their caps allow.
local from = '('
for _ = 1, 100 do
  local member = redis.call('ZRANGEBYLEX', overflow, from, '(t', 'LIMIT', 0, 1)[1]
  if not member then break end
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local key = string.sub(rest, 1, size)
  local tenant = tenant_of(key)
  count_tenant(tenant, -tenant.shared, tenant.held > 0 and 0 or 1)
  from = '(' .. size .. ':' .. key .. ';'
end
