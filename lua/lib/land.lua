-- A delivery is over: it counts no more against its shard key's cap.
local function land(handle, keep)
  local key = fair and redis.call('HGET', owners, handle)
  if not key then return nil end
  if cap > 0 then
    local tenant = tenant_of(key)
    tenant.flight = math.max(0, tenant.flight - 1)
  end
  if not keep then redis.call('HDEL', owners, handle) end
  return key
end
