-- Before the first effect; of returned, leases and delayed something was read already, and of lens and ready before a
-- turn is taken. A read of one message touches the stream in whose turn it is, any other may touch all.
local checked = false
local function check_types(turn)
  if checked then return end
  checked = true
  if not turn then check({lens}, {ready}, {}) end
  check({attempts, moved, tenants, owners}, {overflow}, {notifications, later, dead})
  local single = turn and count == 1 and keys[turn]
  for i = 18, single and 17 or #KEYS do redis.call('XLEN', KEYS[i]) end
  if single then redis.call('XLEN', single) end
end
