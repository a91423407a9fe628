-- Whose turn it is, and how many of each: {key, count}, of so many messages, at most 32.
turns_taken = function(tenant, most)
  local prefix, waiting, taken = turns_of(tenant.name), {}, {}
  most = math.min(most, 32)
  local members = redis.call('ZRANGEBYLEX', overflow, '[' .. prefix, '(' .. string.sub(prefix, 1, -2) .. ';', 'LIMIT', 0, most)
  for at, member in ipairs(members) do
    local key = string.sub(member, #prefix + 18)
    local child = child_of(tenant, key)
    waiting[at] = {key = key, tag = child.tag, left = child.held, step = child.step, count = 0}
  end
  for _ = 1, most do
    local first
    for _, each in ipairs(waiting) do
      if each.left > 0 and (not first or each.tag < first.tag) then first = each end
    end
    if not first then break end
    if first.count == 0 then taken[#taken + 1] = first end
    tenant.tag = math.max(tenant.tag, first.tag)
    first.tag, first.left, first.count = first.tag + first.step, first.left - 1, first.count + 1
  end
  return taken
end
