-- Fairness: which messages count, who has room, and whose overflow is full.
--- @include lib/rules
--- @include lib/tenants
--- @include lib/room
--- @include lib/overflow
--- @include lib/hold_back
local names, fields = {}, {}
for i = 1, count do
  local name = name_of(ARGV[12 + declared + (i - 1) * stride])
  if not names[name] then fields[#fields + 1], names[#names + 1], names[name] = 't:' .. name, name, true end
end
for i, text in ipairs(redis.call('HMGET', tenants, unpack(fields))) do known_as(names[i], text) end
redis.call('ZCARD', overflow)
save = save_tenants
if admitted > 0 or cap > 0 or rules[6] and rules[6] ~= '0' then
  mark = 'K'
  -- Whether a message had to be held back: then it lies in the store, and in its shard key's overflow.
  hold = function(id, at, attributes, headers)
    local key, handle = ARGV[at + 1], 'd:' .. id
    local tenant = tenant_of(key)
    if tenant.held == 0 and room_of(tenant) > 0 then
      tenant.shared = tenant.shared + 1
      return false
    end
    put(later, id, at, attributes, headers)
    local tag = hold_back(tenant, key, handle, false)
    redis.call('HSET', attempts, handle, '0|' .. spelled(ARGV[at]) .. '|' .. tag .. '|')
    return true
  end
end
local full, most, adding = {}, tonumber(rules[6] or '0'), {}
for i = 1, most > 0 and count or 0 do
  local at = 11 + declared + (i - 1) * stride
  local tenant = tenant_of(ARGV[at + 1])
  if not repeated[i] and not (stride == 6 and string.match(ARGV[at + 5], '^%d')) then
    adding[tenant] = (adding[tenant] or tenant.shared + tenant.held) + 1
    if adding[tenant] > most * tenant.weight then full[#full + 1] = i end
  end
end
