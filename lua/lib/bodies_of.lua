-- Bodies lie in the store in the order of the numbers in their ids, so those whose numbers follow each other are one
-- range, whoever's they are.
local function fetch(first, last, size)
  for _, entry in ipairs(redis.call('XRANGE', later, first, last, 'COUNT', size)) do bodies[entry[1]] = entry end
end
local function fetch_run(ids, first)
  local last = first
  while ids[last + 1] do last = last + 1 end
  fetch(ids[first], ids[last], last - first + 1)
end
-- What is gone, or hidden by others' entries, is looked for again by its id.
load_bodies = function(handles)
  local ids = {}
  for _, handle in ipairs(handles) do
    local id, number = string.match(handle, '^d:(%d+%-(%d+))$')
    if id then ids[tonumber(number)] = id end
  end
  for number in pairs(ids) do
    if not ids[number - 1] then fetch_run(ids, number) end
  end
end
