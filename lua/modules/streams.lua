-- The queue's streams and what is known of each: `lens` has its undelivered messages under its number and the cursor below
-- the oldest of them under 'h' and its number; `ready` names the streams that have something undelivered.

-- Returns how many undelivered messages each of `count` streams has, from stream number `first` on.
local function read_lengths(q, first, count)
  local lengths = {}
  for from = first, first + count - 1, 1000 do
    local fields = {}
    for number = from, math.min(from + 999, first + count - 1) do fields[#fields + 1] = number end
    for _, length in ipairs(redis.call('HMGET', q.lens, unpack(fields))) do -- at most 1,000
      lengths[#lengths + 1] = tonumber(length or '0')
    end
  end
  return lengths
end
