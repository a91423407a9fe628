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
local handles = {}
for i = 1, count do
  if is_live(deadlines[i]) then handles[#handles + 1] = string.match(ARGV[4 + i], '^%w+:[%d-]+') end
end
if cap > 0 then
  for _, handle in ipairs(handles) do land(handle) end
  close_accounts()
elseif #handles > 0 then
  redis.call('HDEL', owners, unpack(handles))
end
