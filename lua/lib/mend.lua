-- Nothing is left in the shared streams, so whatever the counts say (somebody deleted entries by hand), nobody holds
-- anything there: let in what their caps allow. Of many shard keys some in each call, so that all have their turn.
local place, key, after = redis.call('HGET', tenants, 'mend') or FIRST_RUN, nil, nil
local begun = place ~= FIRST_RUN
for _ = 1, 100 do
  key, after = next_run(place)
  if not key then break end
  local tenant = tenant_of(key)
  count_tenant(tenant, -tenant.shared, tenant.held > 0 and 0 or 1)
  place = after
end
if key then
  redis.call('HSET', tenants, 'mend', place)
elseif begun then
  redis.call('HDEL', tenants, 'mend')
end
