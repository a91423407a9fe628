-- What the round does: leases, counts, cursors, counters. All of it is written down at the end.
local first_time, again, leased, found, examined = {}, {}, {}, 0, 0
local gone, expired, vanished, adopted = 0, 0, 0, 0
local ends, first_holder = string.format('%.0f', now + visibility), ':1:' .. holder
local ends_of, save_ends, bucket_head
local function lease(token, key)
  leased[#leased + 1], leased[#leased + 2] = key and ends_of and ends_of(key) or ends, token
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
  if save_ends then save_ends() end
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
-- When the first of bucket 0 comes due, from that time on.
local function head(index, from)
  local first = redis.call('ZRANGEBYSCORE', index, from, string.format('(%.0f', SPAN), 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return tonumber(first) or NEVER
end
local function next_lease_end()
  local first = head(leases, '-inf')
  if not jump or first >= jump.to then return first end
  return math.min(first + jump.by, jump.ends, head(leases, jump.to))
end
-- Until the next lease ends or the next message is due; -1 when there is none.
local function ms_to_next_event()
  local soonest = math.min(next_lease_end(), head(delayed, '-inf'), bucket_head and bucket_head() or NEVER)
  return soonest < NEVER and math.max(0, math.ceil(soonest - now)) or -1
end
