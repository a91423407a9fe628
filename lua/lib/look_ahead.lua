-- The lines of many turns in one look, handles and scores by turn. What the look did not reach is looked at by itself.
local function look(from, upto, most)
  local scored = redis.call('ZRANGEBYSCORE', returned, from, upto, 'WITHSCORES', 'LIMIT', 0, most)
  local line, turn
  for at = 1, #scored, 2 do
    local number = math.floor(scored[at + 1] / PLACES)
    if number ~= turn then
      line, turn = {}, number
      lines[tostring(number)] = line
    end
    line[#line + 1], line[#line + 2] = scored[at], scored[at + 1]
  end
  local all = #scored < 2 * most
  if not all then lines[tostring(turn)] = nil end
  return all
end
look_ahead = function(turns, most)
  lines = {}
  if #turns < 2 or most < 2 then return end
  local first = turns[1] * PLACES
  if look(first, '+inf', most + 1) and (turns[#turns] * PLACES > first or look(0, string.format('(%.0f', first), most + 1)) then
    for _, turn in ipairs(turns) do lines[turn] = lines[turn] or {} end
  end
end
