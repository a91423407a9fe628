-- Into the run of a shard key, each in its place: before what was written after it. What one call wrote, and nothing of the
-- run lies between, is one member.
--- @include lib/children
--- @include lib/around
local LONGEST = 32
local holding = {}
local function save_held()
  for from = 1, #holding, 1000 do redis.call('ZADD', overflow, unpack(holding, from, math.min(#holding, from + 999))) end -- at most 1,000
  holding = {}
end
local function add_member(run, numbers, about)
  holding[#holding + 1], holding[#holding + 2] = '0', run .. ordered(numbers) .. ':' .. about
end
-- Whether nothing of the run lies between these two numbers.
local function is_free(run, first, last)
  local member = redis.call('ZREVRANGEBYLEX', overflow, '(' .. run .. ordered(last) .. ';', '[' .. run, 'LIMIT', 0, 1)[1]
  return not member or tonumber(string.match(member, '(%d+):', #run + 2)) < tonumber(first)
end
-- Where the run has a member around this number, that is cut in two.
local function insert(run, about, number)
  local member, numbers, of = around(run, number)
  if member and tonumber(numbers[#numbers]) > tonumber(number) then
    local cut = 1
    while tonumber(numbers[cut]) < tonumber(number) do cut = cut + 1 end
    redis.call('ZREM', overflow, member)
    add_member(run, table.concat(numbers, ',', 1, cut - 1), of)
    add_member(run, table.concat(numbers, ',', cut), of)
  end
  add_member(run, number, about)
  save_held()
end
local function hold_group(run, about, numbers, free)
  if free or is_free(run, numbers[1], numbers[#numbers]) then
    add_member(run, table.concat(numbers, ','), about)
  else
    save_held()
    for _, number in ipairs(numbers) do insert(run, about, number) end
  end
end
-- `items` are in the order of their numbers.
local function hold_back(tenant, key, items)
  local run, group, about = run_of(key), {}, nil
  local numbers = {}
  for at, item in ipairs(items) do numbers[at] = string.format('%.0f', item[9]) end
  local free = is_free(run, numbers[1], numbers[#numbers])
  for at, item in ipairs(items) do
    local says, number = item[3] .. ':' .. item[2] .. (item[6] and '!:' or ':') .. string.format('%.0f', item[8]), numbers[at]
    if group[1] and (says ~= about or #number ~= #group[1] or #group == LONGEST) then
      hold_group(run, about, group, free)
      group = {}
    end
    group[#group + 1], about = number, says
  end
  hold_group(run, about, group, free)
  if parents then count_child(tenant, key, #items, 0) end
  count_tenant(tenant, 0, #items)
end
