-- How many undelivered messages each of these streams has.
local function lengths_of_streams(first, count)
  local lengths = {}
  for from = first, first + count - 1, 1000 do
    local fields = {}
    for number = from, math.min(from + 999, first + count - 1) do fields[#fields + 1] = number end
    for _, length in ipairs(redis.call('HMGET', lens, unpack(fields))) do -- at most 1,000
      lengths[#lengths + 1] = tonumber(length or '0')
    end
  end
  return lengths
end
