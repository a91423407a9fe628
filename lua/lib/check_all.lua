-- Before the first effect; of lens, ready, returned, leases and delayed something was read already. A read of one message
-- touches the stream in whose turn it is, any other may touch all.
local checked = false
local function check_types(turn)
  if checked then return end
  checked = true
  check({attempts, moved, tenants, owners}, {overflow}, {notifications, later, dead})
  for i = 17, turn and count == 1 and keys[turn] and 16 or #KEYS do redis.call('XLEN', KEYS[i]) end
  if turn and count == 1 and keys[turn] then redis.call('XLEN', keys[turn]) end
end
