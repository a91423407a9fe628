-- Bodies lie in the store in the order of the numbers in their ids, so those whose numbers follow each other are one
-- range, whoever's they are.
local function in_order(list)
  local by_number, low, high, sorted = {}, 9e15, 0, {}
  for _, each in ipairs(list) do
    local number = tonumber(each[1])
    by_number[number], low, high = each, math.min(low, number), math.max(high, number)
  end
  if high - low > 4 * #list then return list end
  for number = low, high do sorted[#sorted + 1] = by_number[number] end
  return #sorted == #list and sorted or list
end
-- The entries of these, {number, id, ...} each, by their ids.
local function bodies_of(list)
  local bodies, sorted, from = {}, in_order(list), 1
  local function fetch(first, last, size)
    for _, entry in ipairs(redis.call('XRANGE', later, first, last, 'COUNT', size)) do bodies[entry[1]] = entry end
  end
  for at, each in ipairs(sorted) do
    local following = sorted[at + 1]
    if not following or tonumber(following[1]) ~= each[1] + 1 then
      fetch(sorted[from][2], each[2], at - from + 1)
      from = at + 1
    end
  end
  for _, each in ipairs(sorted) do
    if not bodies[each[2]] then fetch(each[2], each[2], 1) end -- gone, or others wrote between them
  end
  return bodies
end
