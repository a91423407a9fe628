-- One into its run, in its place: before what was written after it.
--- @include lib/children
--- @include lib/around
local function insert(key, about, number)
  local run, earlier, after = run_of(key), {}, {}
  local member, numbers, of = around(run, number)
  for _, each in ipairs(numbers) do
    local side = tonumber(each) < tonumber(number) and earlier or after
    side[#side + 1] = each
  end
  if #after > 0 then
    redis.call('ZREM', overflow, member)
    redis.call('ZADD', overflow, 0, run .. ordered(table.concat(earlier, ',')) .. ':' .. of,
      0, run .. ordered(table.concat(after, ',')) .. ':' .. of)
  end
  redis.call('ZADD', overflow, 0, run .. ordered(number) .. ':' .. about)
end
local function hold_back(tenant, key, handle, hand, more)
  local place, ms, number = string.match(handle, '^(%w+):(%d+)%-(%d+)$')
  insert(key, hand .. ':' .. place .. (more and '!' or '') .. ':' .. ms, number)
  if parents then count_child(tenant, key, 1, 0) end
  count_tenant(tenant, 0, 1)
end
