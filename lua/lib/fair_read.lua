-- A message leaves the shared streams: by being handed out (then it is in flight) or otherwise.
leave = function(fields)
  local tenant = tenant_of(fields[2])
  tenant.shared = math.max(0, tenant.shared - 1)
end
board = function(handle, fields)
  if cap > 0 then
    local tenant = tenant_of(fields[2])
    tenant.flight = tenant.flight + 1
  end
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
    for _, handle in ipairs(room > 0 and withdraw(tenant, room) or {}) do
      admit(tenant, handle)
      any = true
    end
    from = '(' .. size .. ':' .. tenant.name .. ';'
  end
  return any
end
-- The streams are empty and a batch wants more: of the shard keys that it has met, go on with what they hold back, each
-- in its turn. All of a batch leaves at once, so nobody waits behind it, and it need not pass through the line.
local function straight()
  local waiting, before = {}, found
  for _, tenant in pairs(tenants_known) do
    if tenant.held > 0 and room_of(tenant) > 0 then waiting[#waiting + 1] = tenant end
  end
  table.sort(waiting, function(one, other) return one.name < other.name end)
  for at, tenant in ipairs(waiting) do
    local most = math.ceil((count - found) / (#waiting - at + 1))
    if cap > 0 then most = math.min(most, room_of(tenant)) end
    for _, handle in ipairs(most > 0 and withdraw(tenant, most) or {}) do
      -- One that was given back lies in a stream that may not be declared.
      if string.sub(handle, 1, 1) == 'd' then deliver(handle, false) else admit(tenant, handle) end
    end
  end
  return found > before
end
next_round = function(nothing)
  check_types()
  local any = count > 1 and found < count and #turns_to_come(1) == 0 and straight()
  any = admit_all() or any or nothing and redis.call('ZCARD', overflow) > 1 and mend()
  any_returned = redis.call('ZCARD', returned) > 1
  return any
end
close = close_accounts
