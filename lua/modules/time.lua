-- The server's clock: what time it is, and how far it jumped.

-- Returns the server's time in whole milliseconds. Redis 7.0 does not freeze TIME inside a script, so a verb reads it once
-- and keeps it as `q.now`.
local function read_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the last jump of the server's clock as {from, to, by, ends} while it still matters, nil otherwise. `meta` keeps it
-- as "from to by ends": a client agreed with the clock at `from`, and at `to` the clock was `by` ms ahead of what that client
-- expected. A lease with a deadline before `to` was granted before the jump, so it ends `by` later than its deadline says.
-- That holds until `ends`, one lease time later. If the clock goes back below `to`, the deadlines are right again.
local function read_jump(text, now)
  if not text or text == '' then return nil end
  local from, to, by, ends = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
  if from and now >= tonumber(to) and now < tonumber(ends) then
    return {from = tonumber(from), to = tonumber(to), by = tonumber(by), ends = tonumber(ends)}
  end
end
