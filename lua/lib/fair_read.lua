-- A message leaves the shared streams: by being handed out (then it is in flight) or otherwise.
leave = function(fields)
  local tenant = tenant_of(fields[2])
  tenant.shared = math.max(0, tenant.shared - 1)
end
board = function(handle, fields)
  local tenant = tenant_of(fields[2])
  tenant.flight = tenant.flight + 1
  boarded[#boarded + 1], boarded[#boarded + 2] = handle, fields[2]
end
-- Nothing is left in the shared streams, so whatever the counts say (somebody deleted entries by hand), nobody holds
-- anything there: let in what their caps allow.
local function mend()
  local from, any = '(', false
  for _ = 1, 100 do
    local member = redis.call('ZRANGEBYLEX', overflow, from, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local size, rest = string.match(member, '^(%d+):(.*)$')
    local tenant = tenant_of(string.sub(rest, 1, size))
    tenant.shared, tenant.held = 0, math.max(1, tenant.held)
    local room = math.min(room_of(tenant), 200)
    if room > 0 then
      admit(tenant, room)
      any = true
    end
    from = '(' .. size .. ':' .. tenant.name .. ';'
  end
  return any
end
next_round = function(nothing)
  check_types()
  local any = admit_all() or nothing and redis.call('ZCARD', overflow) > 1 and mend()
  any_returned = any_returned or any
  return any
end
close = close_accounts
