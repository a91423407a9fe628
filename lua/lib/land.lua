-- A delivery is over: it counts no more against its shard key's cap.
local function land(key)
  if not key or cap == 0 then return end
  local tenant = tenant_of(key)
  tenant.flight = math.max(0, tenant.flight - 1)
end
