-- What is delayed takes no part in fairness before it is due, but memory: `max_backlog` counts it. `owners` has an entry
-- for each, so whoever adds or removes one counts here.
local function count_delayed(key, by)
  local tenant = tenant_of(key)
  tenant.delayed = math.max(0, tenant.delayed + by)
end
