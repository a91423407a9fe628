-- Bodies lie in the store in the order of the numbers in their ids, so those whose numbers follow each other are one
-- range, whoever's they are. A list of {number, id} in that order, if that is easy.
in_order = function(list)
  local by_number, low, high, sorted = {}, 9e15, 0, {}
  for _, each in ipairs(list) do
    local number = tonumber(each[1])
    by_number[number], low, high = each, math.min(low, number), math.max(high, number)
  end
  if high - low > 4 * #list then return list end
  for number = low, high do sorted[#sorted + 1] = by_number[number] end
  return #sorted == #list and sorted or list
end
local function fetch(first, last, size)
  for _, entry in ipairs(redis.call('XRANGE', later, first, last, 'COUNT', size)) do bodies[entry[1]] = entry end
end
-- What is gone, or hidden by others' entries, is looked for again by its id.
load_bodies = function(handles)
  local list, from = {}, 1
  for _, handle in ipairs(handles) do
    local id, number = string.match(handle, '^d:(%d+%-(%d+))$')
    if id then list[#list + 1] = {number, id} end
  end
  list = in_order(list)
  for at, each in ipairs(list) do
    local following = list[at + 1]
    if not following or tonumber(following[1]) ~= each[1] + 1 then
      fetch(list[from][2], each[2], at - from + 1)
      from = at + 1
    end
  end
end
