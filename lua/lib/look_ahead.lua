-- The lines of many turns in one look: handles and scores, by the least score there. What the look did not reach is looked
-- at by itself.
local function look(from, upto, most)
  local scored = redis.call('ZRANGEBYSCORE', returned, from, upto, 'WITHSCORES', 'LIMIT', 0, most)
  local line, turn
  for at = 1, #scored, 2 do
    local score = tonumber(scored[at + 1])
    local first = score - score % PLACES
    if first ~= turn then
      line, turn = {}, first
      lines[first] = line
    end
    line[#line + 1], line[#line + 2] = scored[at], score
  end
  local all = #scored < 2 * most
  if not all then lines[turn] = nil end
  return all
end
look_ahead = function(turns, most)
  lines = {}
  if #turns < 2 or most < 2 then return end
  local first = turns[1] * PLACES
  if look(first, '+inf', most + 1) and (turns[#turns] * PLACES > first or look(0, string.format('(%.0f', first), most + 1)) then
    for _, turn in ipairs(turns) do lines[turn * PLACES] = lines[turn * PLACES] or {} end
  end
end
