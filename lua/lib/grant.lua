-- What the round does: leases, counts, cursors, counters. All of it is written down at the end.
local first_time, again, leased, found, examined = {}, {}, {}, 0, 0
local gone, expired, vanished, adopted = 0, 0, 0, 0
local ends, first_holder = string.format('%.0f', now + visibility), ':1:' .. holder
local function lease(token)
  leased[#leased + 1], leased[#leased + 2] = ends, token
  found = found + 1
end
local function any_due(index)
  return redis.call('ZCOUNT', index, '-inf', now) > 0
end
local function count_up(counter, by)
  if by ~= 0 then redis.call('HINCRBY', meta, counter, by) end
end
local function grant()
  -- A short lease may end before the readers that block already look again: one of them must know of it.
  if found > 0 and visibility < 5000 then notify('') end
  if found > 0 then redis.call('ZADD', leases, unpack(leased)) end -- at most 2,000: a read
  local totals, emptied = {}, {}
  for turn, left in pairs(undelivered) do
    totals[#totals + 1], totals[#totals + 2] = turn, left
    totals[#totals + 1], totals[#totals + 2] = 'h' .. turn, cursor[turn]
    if left <= 0 then emptied[#emptied + 1] = turn end
    if #totals == 4000 then
      redis.call('HSET', lens, unpack(totals)) -- at most 4,000
      totals = {}
    end
  end
  if #totals > 0 then redis.call('HSET', lens, unpack(totals)) end -- at most 4,000
  if #emptied > 0 then redis.call('ZREM', ready, unpack(emptied)) end -- at most 4,097: all streams
  if gone ~= 0 or adopted ~= 0 then
    count_up('gone', gone)
    count_up('expired', expired)
    count_up('vanished', vanished)
    count_up('adopted', adopted)
  end
end
-- A reader that found nothing makes older notifications worthless: everything they announced was taken.
local function clear_notifications()
  local reply = redis.pcall('XGROUP', 'SETID', notifications, 'shardq', '$')
  if reply.err then redis.call('XGROUP', 'CREATE', notifications, 'shardq', '$', 'MKSTREAM') end
  if redis.call('XLEN', notifications) > 0 then redis.call('XTRIM', notifications, 'MAXLEN', 0) end
  if blocks > 0 and waiting_until < now + 2 * blocks then redis.call('HSET', meta, 'waiting', now + 2 * blocks) end
end
local function head(index)
  return tonumber(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]) or NEVER
end
-- Until the next lease ends or the next message is due; -1 when there is none.
local function ms_to_next_event()
  local soonest = math.min(math.max(head(leases), paused_until), head(delayed))
  return soonest < NEVER and math.max(0, soonest - now) or -1
end
