-- Write down what the round did: leases, counts, cursors, counters.
local function grant()
  local leased, totals, done, ends = {}, {}, {}, string.format('%.0f', now + visibility)
  for _, token in ipairs(tokens) do leased[#leased + 1], leased[#leased + 2] = ends, token end
  -- A short lease may end before the readers that block already look again: one of them must know of it.
  if #leased > 0 and visibility < 5000 then notify('') end
  if #leased > 0 then redis.call('ZADD', leases, unpack(leased)) end
  for turn, left in pairs(undelivered) do
    totals[#totals + 1], totals[#totals + 2] = turn, left
    totals[#totals + 1], totals[#totals + 2] = 'h' .. turn, cursor[turn]
    if left <= 0 then done[#done + 1] = turn end
  end
  if #totals > 0 then redis.call('HSET', lens, unpack(totals)) end
  if #done > 0 then redis.call('ZREM', ready, unpack(done)) end
  for counter, by in pairs(counters) do
    if by ~= 0 then redis.call('HINCRBY', meta, counter, by) end
  end
end
-- A reader that found nothing makes older notifications worthless: everything they announced was taken.
local function clear_notifications()
  local reply = redis.pcall('XGROUP', 'SETID', notifications, 'shardq', '$')
  if reply.err then redis.call('XGROUP', 'CREATE', notifications, 'shardq', '$', 'MKSTREAM') end
  if redis.call('XLEN', notifications) > 0 then redis.call('XTRIM', notifications, 'MAXLEN', 0) end
  if blocks > 0 and waiting_until < now + 2 * blocks then redis.call('HSET', meta, 'waiting', now + 2 * blocks) end
end
