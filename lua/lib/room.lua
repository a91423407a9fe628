-- How many more may be in the shared streams. While fewer than eight are active the window is wider: each of n has
-- 8 / n places, rounded down (more would be unfair to whom comes next: docs/fairness.md). Where there are weights each
-- has one: a share is then the number of messages that leave in its turn (lib/linger).
local admitted = tonumber(rules[1] or '0')
local function under_cap(tenant)
  return cap > 0 and cap * tenant.weight - tenant.flight - tenant.shared or 9e15
end
local function room_of(tenant)
  if admitted == 0 then return under_cap(tenant) end
  local places, others = admitted, active
  if weighted then
    places = 1
  elseif others < 9 then
    if tenant.shared + tenant.held > 0 then others = others - 1 end
    places = math.max(admitted, math.floor(8 / (others + 1)))
  end
  local room = places - tenant.shared
  return cap > 0 and math.min(room, under_cap(tenant)) or room
end
