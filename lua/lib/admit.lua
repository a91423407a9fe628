-- The first in a shard key's overflow: out of it.
--- @include lib/next_place
local function withdraw(tenant, most)
  local run, handles = #tenant.name .. ':' .. tenant.name, {}
  local members = redis.call('ZRANGEBYLEX', overflow, '[' .. run .. ':', '(' .. run .. ';', 'LIMIT', 0, most)
  if #members > 0 then redis.call('ZREM', overflow, unpack(members)) end
  tenant.held = #members < most and 0 or math.max(0, tenant.held - #members)
  for at, member in ipairs(members) do
    local tag, handle, key = string.match(string.sub(member, #run + 2), '^(%d+):%d+:(%S+) ?(.*)$')
    tenant.tag, handles[at] = tonumber(tag), handle
    if key ~= '' then
      local child = child_of(tenant, key)
      child.held = child.held - 1
    end
  end
  return handles
end
-- Into the line.
local function admit(tenant, handle)
  local _, hand = attempts_of(handle)
  tenant.shared = tenant.shared + 1
  line_up(handle, turn_of(string.match(handle, '^%w+'), hand), next_place())
end
local function admit_all()
  local any = false
  for _, tenant in pairs(tenants_known) do
    local room = tenant.held > 0 and math.min(room_of(tenant), tenant.held, 200) or 0
    for _, handle in ipairs(room > 0 and withdraw(tenant, room) or {}) do
      admit(tenant, handle)
      any = true
    end
  end
  return any
end
local function close_accounts()
  admit_all()
  save_tenants()
  save_places()
end
