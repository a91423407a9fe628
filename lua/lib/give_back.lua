-- Make messages deliverable again, in the order of their numbers: each in its stream's turn (one from the store in the turn
-- of the shortest stream of its hand), in the place in line that its number gives it. One that counts in the admission
-- window takes a place behind all that came so far, so that who fails again and again has no more turns than others; without
-- room it is held back. Items are as `end_leases` makes them.
--- @include lib/counts
--- @include lib/legacy
--- @include lib/tenants
--- @include lib/room
--- @include lib/hold_back
--- @include lib/next_place
--- @include lib/line_up_all
local function comes_first(one, other)
  if one[8] ~= other[8] then return one[8] < other[8] end
  return one[9] < other[9]
end
-- By numbers alone, which take no call to compare, where no two are the same: all but the legacy stream's are given once.
local function sort_by_numbers(items)
  local numbers, by_number = {}, {}
  for at, item in ipairs(items) do
    local number = item[9]
    if item[2] == 'l' or by_number[number] then return table.sort(items, comes_first) end
    numbers[at], by_number[number] = number, item
  end
  table.sort(numbers)
  for at, number in ipairs(numbers) do items[at] = by_number[number] end
end
local function sort_items(items)
  for at = 2, #items do
    if comes_first(items[at], items[at - 1]) then return sort_by_numbers(items) end
  end
end
-- The numbers in ids of the legacy stream begin anew with each millisecond.
local function place_of(item)
  local number = item[9]
  if item[2] == 'l' then
    item[4] = LEGACY
    number = item[8] % 4294967296 * 256 + math.min(number, 255)
  end
  return math.min(number, PLACES - 1)
end
local function give_back_all(items)
  local lining, held, held_keys, owned = {}, {}, {}, {}
  sort_items(items)
  for _, item in ipairs(items) do owned[#owned + 1] = item[7] or nil end
  meet(owned)
  for _, item in ipairs(items) do
    local key = item[7]
    local tenant = key and tenant_of(key)
    if not key then
      item[5] = place_of(item)
      lining[#lining + 1] = item
    elseif room_of(tenant) > 0 then
      count_tenant(tenant, 1, 0)
      lining[#lining + 1] = item
    else
      if not held[key] then held[key], held_keys[#held_keys + 1] = {}, key end
      table.insert(held[key], item)
    end
  end
  for _, key in ipairs(held_keys) do hold_back(tenant_of(key), key, held[key]) end
  save_held()
  line_up_all(lining)
end
