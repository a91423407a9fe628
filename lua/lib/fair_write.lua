-- Fairness: which messages count, who has room, and whose overflow is full.
--- @include lib/rules
--- @include lib/tenants
--- @include lib/room
--- @include lib/children
--- @include lib/append_run
--- @include lib/count_delayed
local keys_given = {}
for i = 1, count do keys_given[i] = ARGV[12 + declared + (i - 1) * stride] end
meet(keys_given)
redis.call('ZCARD', overflow)
local most, full, adding = tonumber(rules[6] or '0'), {}, {}
local runs, held_keys, hands = {}, {}, {}
if admitted > 0 or cap > 0 or most > 0 then
  mark = 'K'
  -- Whether a message had to be held back: then it lies in the store, and in its shard key's overflow.
  hold = function(id, at, attributes, headers)
    local key = ARGV[at + 1]
    local tenant = tenant_of(key)
    if tenant.held == 0 and room_of(tenant) > 0 then
      count_tenant(tenant, 1, 0)
      return false
    end
    put(later, id, at, attributes, headers)
    local run, number = runs[key], string.sub(id, #prefix + 1)
    if run then
      run[#run + 1] = number
    else
      runs[key], hands[#hands + 1], held_keys[#held_keys + 1] = {number}, ARGV[at], key
    end
    count_tenant(tenant, 0, 1)
    return true
  end
end
-- A message that was stored before has its id in place of a place.
local function is_delayed(i)
  return places[i] == 'd' and string.match(ARGV[16 + declared + (i - 1) * stride], '^[1-9]')
end
save = function()
  for i = 1, mark == 'K' and stride == 6 and count or 0 do
    if is_delayed(i) then count_delayed(keys_given[i], 1) end
  end
  for at, key in ipairs(held_keys) do
    local run = runs[key]
    append_run(key, spelled(hands[at]), run)
    if parents then count_child(tenant_of(key), key, #run, 0) end
  end
  save_runs()
  save_tenants()
  save_heads()
end
for i = 1, most > 0 and count or 0 do
  local tenant = tenant_of(keys_given[i])
  if not repeated[i] then
    adding[tenant] = (adding[tenant] or tenant.shared + tenant.held + tenant.delayed) + 1
    if adding[tenant] > most then full[#full + 1] = i end
  end
end
