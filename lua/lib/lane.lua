-- Whether this lane has stored these messages before, or what comes after them. A call that finds that it did writes all
-- the same, a time that is there already: WAIT waits for what its own connection wrote last, and the first try was another's.
local tally, number, keep = nil, string.match(ARGV[3], '^(%d+)|(%d+)$')
if lane ~= '' and not number then
--- @include lib/tally
elseif lane ~= '' then
  sequence, lane_window = tonumber(number), 2 * keep
  local done, stored = lane_result(lane, sequence)
  if done == 'again' then redis.call('HSET', meta, 'ms', state[3]) end
  if done then return done == 'again' and {'OK', stored} or {'STALE'} end
  if lane_ends == 0 and not is_room(lanes, MAX_LANES) then return {'FULL', 'max_lanes'} end
end
