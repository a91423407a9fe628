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

-- Reads what a caller says of the server's clock: "latest since slack", and " jump from to by" if it saw the clock jump. The
-- clock should show `latest` ms or less, which is exact to `slack` ms. Since `since` it never was wrong by more.
local function read_view(text)
  local latest, since, slack, rest = string.match(text, '^(%d+) (%d+) (%d+)(.*)$')
  local from, to, by = string.match(rest, '^ jump (%d+) (%d+) (%d+)$')
  return {
    latest = tonumber(latest), since = tonumber(since), slack = tonumber(slack),
    from = tonumber(from), to = tonumber(to), by = tonumber(by),
  }
end

-- Returns the time at which a lease must have ended to be taken back. A call that was under way for long looks as if the clock
-- had jumped, so nothing is concluded from a late call: it takes back only what had ended when it was sent, and the next call
-- takes back the rest.
local function end_of_leases(q, view)
  return q.now <= view.latest and q.now or view.latest - view.slack
end

-- Says whether a caller disproves a jump: its view was right before the jump and is right now, and it would have noticed. A
-- machine that stood still sees a jump as well, and this ends what its report began.
local function is_disproved(q, jump, view)
  return view.since <= jump.from and q.now <= view.latest and view.slack < jump.by
end

-- Returns the jump that a caller reports. If several clients see the same one, the first report counts, and only a longer jump
-- takes its place.
local function report_jump(q, jump, view)
  local is_known = jump and view.by <= jump.by + view.slack
  local seen = is_known and jump or view
  local ends = math.max(is_known and jump.ends or 0, seen.to + q.visibility)
  return {from = seen.from, to = seen.to, by = seen.by, ends = ends}
end

-- Returns the jump that counts after this call, or nil. `known` is what `meta` says of it, which is changed where a caller's
-- view changes it.
local function update_jump(q, view, known)
  local jump = read_jump(known, q.now)
  if view.from then jump = report_jump(q, jump, view) end
  if jump and is_disproved(q, jump, view) then jump = nil end
  local text = jump and string.format('%.0f %.0f %.0f %.0f', jump.from, jump.to, jump.by, jump.ends) or ''
  if text ~= known then redis.call('HSET', q.meta, 'jump', text) end
  return jump and read_jump(text, q.now)
end
