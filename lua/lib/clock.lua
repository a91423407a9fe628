-- What a caller makes of the server's clock: "latest since slack", and " jump from to by" if it saw it jump. At `latest`
-- ms or before it should be now, which is exact to `slack` ms; since `since` the two clocks never disagreed by more.
local function clock_of(text)
  local latest, since, slack, rest = string.match(text, '^(%d+) (%d+) (%d+)(.*)$')
  local from, to, by = string.match(rest, '^ jump (%d+) (%d+) (%d+)$')
  return {
    latest = tonumber(latest), since = tonumber(since), slack = tonumber(slack),
    from = tonumber(from), to = tonumber(to), by = tonumber(by),
  }
end
-- Until when a lease must have ended to be taken back. A call that was under way for long looks as if the clock had jumped.
-- So nothing is concluded from a late call: it only takes back what had ended when it was sent, and the next call the rest.
local function ended_by(clock, now)
  return now <= clock.latest and now or clock.latest - clock.slack
end
-- A machine that stood still sees a jump as well. So whoever agreed with the clock before it and does so now, and would have
-- noticed, ends what another client's report began.
local function contradicts(clock, jump, now)
  return clock.since <= jump.from and now <= clock.latest and clock.slack < jump.by
end
-- A jump that several clients see is taken from the first that told: while it counts, only a longer one takes its place.
local function reported(clock, jump, visibility)
  local known = jump and clock.by <= jump.by + clock.slack
  local seen = known and jump or clock
  return {from = seen.from, to = seen.to, by = seen.by, ends = math.max(known and jump.ends or 0, seen.to + visibility)}
end
-- What the jump is after this call, written down if the call changes it.
local function jump_after(clock, known, now, visibility)
  local jump = known ~= '' and jump_of(known, now) or nil
  if clock.from then jump = reported(clock, jump, visibility) end
  if jump and contradicts(clock, jump, now) then jump = nil end
  local text = jump and string.format('%.0f %.0f %.0f %.0f', jump.from, jump.to, jump.by, jump.ends) or ''
  if text ~= known then redis.call('HSET', meta, 'jump', text) end
  return jump and jump_of(text, now)
end
