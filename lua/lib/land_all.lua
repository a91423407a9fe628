-- These deliveries are over: what their shard keys hold back may come, where a cap kept it out.
--- @include lib/notify
local streams, fair = tonumber(state[3]), true
waiting_until = tonumber(state[2])
--- @include lib/attempts_of
--- @include lib/rules
--- @include lib/counts
--- @include lib/legacy
--- @include lib/line
--- @include lib/turn_of
--- @include lib/tenants
--- @include lib/room
--- @include lib/children
--- @include lib/admit
--- @include lib/land
--- @include lib/check
check({lens, tenants, owners, attempts}, {ready, returned, overflow}, {notifications})
for i = 1, count do
  if is_live(deadlines[i]) then land(string.match(ARGV[4 + i], '^%w+:[%d-]+')) end
end
close_accounts()
