-- Out of a shard key's overflow: its first ones.
--- @include lib/children
--- @include lib/withdraw_run
local turns_taken
if parents then
--- @include lib/turns_taken
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
