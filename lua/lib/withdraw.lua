-- Out of a shard key's overflow: its first ones.
--- @include lib/children
--- @include lib/withdraw_run
-- Whose turn it is, and how many of each: {key, count}, of so many messages, at most 32.
local function turns_taken(tenant, most)
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
local function withdraw(tenant, most)
  local items = {}
  if not parents then
    withdraw_run(tenant.name, most, items)
  else
    local before
    repeat
      before = #items
      for _, turn in ipairs(turns_taken(tenant, most - #items)) do
        withdraw_run(turn.key, turn.count, items)
        count_child(tenant, turn.key, -turn.count, turn.count)
      end
      save_overflow()
    until #items == before or #items == most
  end
  count_tenant(tenant, 0, #items < most and -tenant.held or -math.min(tenant.held, #items))
  return items
end
