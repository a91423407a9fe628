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
-- What stands in line in a stream is often all that it has there: from the first to the last, but no more than are wanted.
local function fetch_lines(handles)
  local lines_in, places = {}, {}
  for _, handle in ipairs(handles) do
    local place, id = string.match(handle, '^(%d+):(.*)$')
    local line = place and lines_in[place]
    if line then
      line.last, line.size = id, line.size + 1
    elseif place then
      lines_in[place], places[#places + 1] = {first = id, last = id, size = 1}, place
    end
  end
  for _, place in ipairs(places) do
    local line = lines_in[place]
    if line.size > 1 then
      for _, entry in ipairs(redis.call('XRANGE', keys[place], line.first, line.last, 'COUNT', line.size)) do
        bodies[place .. ':' .. entry[1]] = entry
      end
    end
  end
end
-- What is gone, or hidden by others' entries, is looked for again by its id.
load_bodies = function(handles)
  local ids = {}
  for _, handle in ipairs(handles) do
    local id, number = string.match(handle, '^d:(%d+%-(%d+))$')
    if id then ids[tonumber(number)] = id end
  end
  fetch_lines(handles)
  for number in pairs(ids) do
    if not ids[number - 1] then fetch_run(ids, number) end
  end
end
