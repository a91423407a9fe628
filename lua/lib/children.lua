-- A child of a parent, such as "acct-7/user-9" of "acct-7": how many are held of it, and the tag of the last one.
local function child_of(tenant, key)
  if key == tenant.name then return nil end
  local child = tenant.children[key]
  if not child then
    local held, last = string.match(redis.call('HGET', tenants, 'c:' .. key) or '0 0', '^(%d+) (%d+)$')
    child = {held = tonumber(held), last = tonumber(last)}
    tenant.children[key] = child
  end
  return child
end
