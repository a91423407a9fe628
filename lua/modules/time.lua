-- The server's clock: what time it is, and how far it jumped.

-- Returns the server's time in whole milliseconds. Redis 7.0 does not freeze TIME inside a script, so a verb reads it once
-- and keeps it as `q.now`.
local function read_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
