-- The admission window. Of each shard key (of its parent, the part before the first '/', where the queue has parents)
-- are known: undelivered messages in the shared streams, messages held in its overflow, the tag of the last child that
-- was let in, turns that it is still due, delayed messages: "shared held[ tag due][ +delayed]"; apart from these, its
-- deliveries in flight and its weight. Loaded at most once and saved once in a call. A message that counts is marked by its first field, 'K', so switching the window on or off
-- never miscounts. `sum` counts the active shard keys and all that is held.
local cap, parents, weighted = tonumber(rules[2] or '0'), rules[3] == '1', (rules[4] or '0') ~= '0'
local accounts, account_of, active, held_back, sum = {}, {}, 0, 0, nil
local function name_of(key)
  return parents and string.match(key, '^[^/]+') or key
end
-- Of eight fields at most, unless more is needed: a ninth doubles what a table takes, and there is one for each shard key.
local function open_account(name, field, text, flight, weight)
  local shared, held, delayed = 0, 0, 0
  if text then
    local rest
    shared, held, rest = string.match(text, '^(%d+) (%d+)(.*)$')
    shared, held = tonumber(shared), tonumber(held)
    if rest ~= '' then delayed = tonumber(string.match(rest, '%+(%d+)$') or '0') end
  end
  local tenant = {
    name = name, field = field, was = text, shared = shared, held = held, delayed = delayed, weight = 1, turn = false,
  }
  if parents or weighted then
    local tag, due = string.match(text or '', '^%d+ %d+ (%d+) (%d+)')
    tenant.tag, tenant.weight = tonumber(tag) or 0, tonumber(weight) or 1
    tenant.due = math.min(tonumber(due) or 0, tenant.weight - 1) -- its weight may have become less
    tenant.children = parents and {}
  end
  if cap > 0 then
    -- What was counted under an earlier cap counts no more: nobody may have counted it down since.
    local since, count = string.match(flight or '', '^(%d+) (%d+)$')
    tenant.flight = since == rules[7] and tonumber(count) or 0
    tenant.flew = (not since or since == rules[7]) and tenant.flight
  end
  accounts[#accounts + 1], account_of[name] = tenant, tenant
end
-- Open the accounts of these shard keys, all in one look.
local function meet(keys)
  local names, fields = {}, {sum == nil and 'sum' or nil}
  local first = #fields
  for _, key in ipairs(keys) do
    local name = parents and name_of(key) or key
    if account_of[name] == nil then
      local field = 't:' .. name
      account_of[name], names[#names + 1], fields[#fields + 1] = false, name, field
      if cap > 0 then fields[#fields + 1] = 'f:' .. name end
      if weighted then fields[#fields + 1] = 'w:' .. name end
    end
  end
  if #names == 0 then return end
  local texts, at = redis.call('HMGET', tenants, unpack(fields)), first -- at most 6,001: three for each of 2,000 keys
  if first == 1 then
    sum = texts[1] or '0 0'
    local some, all = string.match(sum, '^(%d+) (%d+)$')
    active, held_back = tonumber(some), tonumber(all)
  end
  for _, name in ipairs(names) do
    local field, text, flight = fields[at + 1], texts[at + 1], nil
    if cap > 0 then at, flight = at + 1, texts[at + 2] end
    if weighted then at = at + 1 end
    at = at + 1
    open_account(name, field, text, flight, weighted and texts[at])
  end
end
local function tenant_of(key)
  local name = parents and name_of(key) or key
  if not account_of[name] then meet({name}) end
  return account_of[name]
end
local function count_tenant(tenant, shared, held)
  local before, was_held = tenant.shared + tenant.held, tenant.held
  tenant.shared, tenant.held, held_back = math.max(0, tenant.shared + shared), was_held + held, held_back + held
  local after = tenant.shared + tenant.held
  if before == 0 and after > 0 then
    active = active + 1
  elseif before > 0 and after == 0 then
    active = active - 1
  end
end
--- @include lib/save_tenants
