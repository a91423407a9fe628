-- How many more may be in the shared streams. While fewer than eight are active the window is wider: together they have
-- eight places at least (more would be unfair to whom comes next: docs/fairness.md). Where there are weights each has one:
-- a share is then the number of messages that leave in its turn (lib/linger).
local admitted = tonumber(rules[1] or '0')
local function under_cap(tenant)
  return cap > 0 and cap * tenant.weight - tenant.flight - tenant.shared or 9e15
end
local function room_of(tenant)
  local room = under_cap(tenant)
  if admitted > 0 then
    local others = active - (tenant.shared + tenant.held > 0 and 1 or 0)
    room = math.min(room, (weighted and 1 or math.max(admitted, math.floor(8 / (others + 1)))) - tenant.shared)
  end
  return room
end
