-- The admission window. Of each shard key (of its parent, the part before the first '/', where the queue has parents)
-- are known: undelivered messages in the shared streams, messages held in its overflow, deliveries in flight, and the
-- tag of the last one that was let in. Loaded at most once and saved once in a call. A message that counts is marked by
-- its first field, 'K', so switching the window on or off never miscounts.
local parents, weighted, tenants_known = rules[3] == '1', rules[4] == '1', {}
local function tenant_of(key)
  local name = parents and string.match(key, '^[^/]+') or key
  local tenant = tenants_known[name]
  if tenant then return tenant end
  local text = redis.call('HGET', tenants, 't:' .. name)
  local shared, held, flight, tag = string.match(text or '0 0 0 0', '^(%d+) (%d+) (%d+) (%d+)$')
  local weight = weighted and redis.call('HGET', tenants, 'w:' .. name) or 1
  tenant = {
    name = name, shared = tonumber(shared), held = tonumber(held), flight = tonumber(flight), tag = tonumber(tag),
    weight = tonumber(weight), children = {},
  }
  tenants_known[name] = tenant
  return tenant
end
local function save_tenants()
  local gained = 0
  for name, tenant in pairs(tenants_known) do
    local field = 't:' .. name
    if tenant.shared + tenant.held + tenant.flight > 0 then
      local text = string.format('%d %d %d %.0f', tenant.shared, tenant.held, tenant.flight, tenant.tag)
      gained = gained + redis.call('HSET', tenants, field, text)
    else
      gained = gained - redis.call('HDEL', tenants, field)
    end
    for key, child in pairs(tenant.children) do
      local text = string.format('%d %.0f', child.held, child.last)
      if child.held > 0 then redis.call('HSET', tenants, 'c:' .. key, text) else redis.call('HDEL', tenants, 'c:' .. key) end
    end
  end
  if gained ~= 0 then redis.call('HINCRBY', tenants, 'active', gained) end
end
