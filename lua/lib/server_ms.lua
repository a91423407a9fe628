-- The server's clock in whole milliseconds. Redis 7.0 does not freeze TIME inside a script, so it is read once.
local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
