-- Write down what the streams gained. One that was empty becomes ready, its cursor just below its first new entry.
local totals, turns = {'HSET', lens}, {'ZADD', ready}
for to in pairs(changed) do
  totals[#totals + 1], totals[#totals + 2] = order[to], undelivered[to]
  if first[to] then
    turns[#turns + 1], turns[#turns + 2] = order[to], order[to]
    totals[#totals + 1], totals[#totals + 2] = 'h' .. order[to], prefix .. (first[to] - 1)
  end
end
if #turns > 2 then redis.call(unpack(turns)) end -- at most 502: a write
if #totals > 2 then redis.call(unpack(totals)) end -- at most 1,002: a write
redis.call('HSET', meta, 'n', n, 'ms', ms)
