-- The admission window. Of each shard key (of its parent, the part before the first '/', where the queue has parents)
-- are known: undelivered messages in the shared streams, messages held in its overflow, deliveries in flight, and the
-- tag of the last one that was let in. Loaded at most once and saved once in a call. A message that counts is marked by
-- its first field, 'K', so switching the window on or off never miscounts.
local parents, weighted, cap, tenants_known = rules[3] == '1', rules[4] == '1', tonumber(rules[2] or '0'), {}
local function name_of(key)
  return parents and string.match(key, '^[^/]+') or key
end
local function known_as(name, text)
  local shared, held, tag = string.match(text or '0 0 0', '^(%d+) (%d+) (%d+)$')
  local weight = weighted and redis.call('HGET', tenants, 'w:' .. name) or 1
  local tenant = {
    name = name, was = text, shared = tonumber(shared), held = tonumber(held), tag = tonumber(tag), flight = 0,
    weight = tonumber(weight), children = {},
  }
  -- What was counted under an earlier cap counts no more: nobody may have counted it down since.
  local since, flight = string.match(cap > 0 and redis.call('HGET', tenants, 'f:' .. name) or '', '^(%d+) (%d+)$')
  if since == rules[7] then tenant.flight = tonumber(flight) end
  tenants_known[name] = tenant
  return tenant
end
local function tenant_of(key)
  local name = name_of(key)
  return tenants_known[name] or known_as(name, redis.call('HGET', tenants, 't:' .. name))
end
local function save_tenants()
  local active, set, unset = 0, {'HSET', tenants}, {'HDEL', tenants}
  for name, tenant in pairs(tenants_known) do
    local text = false
    if tenant.shared + tenant.held > 0 then
      text = string.format('%d %d %.0f', tenant.shared, tenant.held, tenant.tag)
    end
    if text and text ~= tenant.was then set[#set + 1], set[#set + 2] = 't:' .. name, text end
    if tenant.was and not text then unset[#unset + 1] = 't:' .. name end
    if cap > 0 and tenant.flight > 0 then
      set[#set + 1], set[#set + 2] = 'f:' .. name, rules[7] .. ' ' .. tenant.flight
    elseif cap > 0 then
      unset[#unset + 1] = 'f:' .. name
    end
    active = active + (text and 1 or 0) - (tenant.was and 1 or 0)
    for key, child in pairs(tenant.children) do
      if child.held > 0 then
        set[#set + 1], set[#set + 2] = 'c:' .. key, string.format('%d %.0f', child.held, child.last)
      else
        unset[#unset + 1] = 'c:' .. key
      end
    end
  end
  if #set > 2 then redis.call(unpack(set)) end
  if #unset > 2 then redis.call(unpack(unset)) end
  if active ~= 0 then redis.call('HINCRBY', tenants, 'active', active) end
end
