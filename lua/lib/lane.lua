-- Whether this lane has stored these messages before, or what comes after them.
local tally
if lane ~= '' and not sequence then
--- @include lib/tally
elseif lane ~= '' then
  local done, stored = lane_result(lane, sequence)
  if done then return done == 'again' and {'OK', stored} or {'STALE'} end
end
