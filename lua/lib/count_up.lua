-- Write down what the streams gained. One that was drained becomes ready, its cursor just below its first new entry.
local function count_up()
  local totals = {'HSET', lens}
  for to, lowest in pairs(first) do
    totals[#totals + 1], totals[#totals + 2] = order[to], undelivered[to]
    if before[to] == 0 then
      redis.call('ZADD', ready, order[to], order[to])
      totals[#totals + 1], totals[#totals + 2] = 'h' .. order[to], string.format('%.0f-%.0f', ms, lowest - 1)
    end
  end
  if #totals > 2 then redis.call(unpack(totals)) end
end
