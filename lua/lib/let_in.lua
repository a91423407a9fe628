-- What happens to a message that counts: it gets in line if its shard key has room, else it is held.
local function let_in(handle, key, hand)
  local tenant = tenant_of(key)
  if room_of(tenant) > 0 then
    count_tenant(tenant, 1, 0)
    return true
  end
  hold_back(tenant, key, handle, hand, redis.call('HEXISTS', attempts, handle) == 1)
  return false
end
