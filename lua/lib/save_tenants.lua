-- What the accounts say now, written down.
--- @include lib/parts
-- A number as text takes as long as ten looks into a table.
local texts_of = {}
local function text_of(number)
  local text = texts_of[number]
  if not text then
    text = string.format('%d', number)
    texts_of[number] = text
  end
  return text
end
local function save_tenants()
  local set, unset = {}, {}
  local function save(field, was, text)
    if text and text ~= was then set[#set + 1], set[#set + 2] = field, text end
    if was and not text then unset[#unset + 1] = field end
  end
  for _, tenant in ipairs(accounts) do
    local any = tenant.shared + tenant.held + tenant.delayed > 0
    local text = any and text_of(tenant.shared) .. ' ' .. text_of(tenant.held)
    if text and tenant.tag and (tenant.tag > 0 or tenant.due > 0) then text = text .. string.format(' %.0f %d', tenant.tag, tenant.due) end
    if tenant.delayed > 0 then text = text .. ' +' .. text_of(tenant.delayed) end
    save(tenant.field, tenant.was, text)
    if tenant.flight ~= tenant.flew then
      save('f:' .. tenant.name, true, tenant.flight > 0 and rules[7] .. ' ' .. tenant.flight)
    end
    if tenant.children then
      for key, child in pairs(tenant.children) do
        save('c:' .. key, child.was, child.held > 0 and string.format('%d %.0f', child.held, child.tag))
      end
    end
  end
  local text = active .. ' ' .. held_back
  if sum and text ~= sum then set[#set + 1], set[#set + 2] = 'sum', text end
  in_parts(set, function(from, upto) redis.call('HSET', tenants, unpack(set, from, upto)) end)
  in_parts(unset, function(from, upto) redis.call('HDEL', tenants, unpack(unset, from, upto)) end)
end
