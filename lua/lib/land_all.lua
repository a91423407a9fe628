-- These deliveries are over: what their shard keys hold back may come, where a cap kept it out.
--- @include lib/notify
local streams, fair = tonumber(state[3]), true
waiting_until = tonumber(state[2])
--- @include lib/rules
--- @include lib/counts
--- @include lib/tenants
--- @include lib/room
--- @include lib/admit
--- @include lib/owner_in
--- @include lib/land
--- @include lib/check
check({lens, tenants, attempts}, {ready, returned, overflow}, {notifications})
local owned = {}
for i = 1, count do
  local _, key = owner_in(ARGV[4 + i])
  if key and is_live(deadlines[i]) then owned[#owned + 1] = key end
end
meet(owned)
for _, key in ipairs(owned) do land(key) end
close_accounts()
