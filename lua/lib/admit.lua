-- From the overflow into the line, the first in the run first.
local function admit(tenant, most)
  local run = #tenant.name .. ':' .. tenant.name
  local members = redis.call('ZRANGEBYLEX', overflow, '[' .. run .. ':', '(' .. run .. ';', 'LIMIT', 0, most)
  if #members > 0 then redis.call('ZREM', overflow, unpack(members)) end
  if #members < most then tenant.held = #members end
  for _, member in ipairs(members) do
    local tag, handle, key = string.match(string.sub(member, #run + 2), '^(%d+):%d+:(%S+) ?(.*)$')
    tenant.tag, tenant.held, tenant.shared = tonumber(tag), tenant.held - 1, tenant.shared + 1
    if key ~= '' then
      local child = child_of(tenant, key)
      child.held = child.held - 1
    end
    local _, hand = attempts_of(handle)
    line_up(handle, turn_of(string.match(handle, '^%w+'), hand), tonumber(rules[5]))
  end
end
local function admit_all()
  local any = false
  for _, tenant in pairs(tenants_known) do
    if tenant.held > 0 then
      local room = math.min(room_of(tenant), tenant.held, 200)
      if room > 0 then
        admit(tenant, room)
        any = true
      end
    end
  end
  return any
end
local function close_accounts()
  admit_all()
  save_tenants()
end
