-- One out of the middle of its run; whether it was there.
--- @include lib/around
local function pull(key, place, number)
  local run, rest = run_of(key), {}
  local member, numbers, about = around(run, number)
  if not member or string.match(about, ':(%w+)!?:%d+$') ~= place then return false end
  for _, each in ipairs(numbers) do
    if each ~= number then rest[#rest + 1] = each end
  end
  if #rest == #numbers then return false end
  redis.call('ZREM', overflow, member)
  if #rest > 0 then redis.call('ZADD', overflow, 0, run .. ordered(table.concat(rest, ',')) .. ':' .. about) end
  return true
end
