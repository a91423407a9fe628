-- How many more may be in the shared streams. While fewer than eight are active the window is wider: together they have
-- eight places at least (more would be unfair to whom comes next: docs/fairness.md).
local admitted = tonumber(rules[1] or '0')
local function room_of(tenant)
  local room = 9e15
  if admitted > 0 then
    local others = active - (tenant.shared + tenant.held > 0 and 1 or 0)
    room = math.max(admitted, math.floor(8 / (others + 1))) - tenant.shared
  end
  if cap > 0 then room = math.min(room, cap * tenant.weight - tenant.flight - tenant.shared) end
  return room
end
