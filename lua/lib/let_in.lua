-- What happens to a message that counts: it gets in line if its shard key has room, else it is held.
local function let_in(handle, key)
  local tenant = tenant_of(key)
  if room_of(tenant) > 0 then
    tenant.shared = tenant.shared + 1
    return true
  end
  local count, hand, last_error = attempts_of(handle)
  note_attempts(handle, count, hand, last_error, hold_back(tenant, key, handle, true))
  return false
end
