-- The server's clock may jump. A lease that was granted before a jump ends later than its deadline says, by the length
-- of the jump.

-- Returns the last jump as {from, to, by, ends} while it still matters, nil otherwise. The state keeps it as "from to
-- by ends": a client agreed with the clock at `from`, and at `to` the clock was `by` ms ahead of what that client
-- expected. A lease with a deadline before `to` was granted before the jump. That holds until `ends`, one lease time
-- later. If the clock goes back below `to`, the deadlines are right again.
function Clock.read_jump(text, now)
  local from, to, by, ends = match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if from and now >= to + 0 and now < ends + 0 then
    return {from = from + 0, to = to + 0, by = by + 0, ends = ends + 0}
  end
end

-- Reads what a caller says of the clock: "latest since slack", and " jump from to by" if it saw the clock jump. The
-- clock should show `latest` ms or less, which is exact to `slack` ms. Since `since` it never was wrong by more.
function Clock.read_view(text)
  local latest, since, slack, rest = match(text, '^(%d+) (%d+) (%d+)(.*)$')
  local from, to, by = match(rest or '', '^ jump (%d+) (%d+) (%d+)$')
  if not latest then Arguments.refuse('the caller says nothing of its clock') end
  if max(latest, since, slack, from or 0, to or 0, by or 0) > FAR then
    Arguments.refuse('a time of the caller is too large')
  end
  return {
    latest = latest + 0, since = since + 0, slack = slack + 0,
    from = tonumber(from), to = tonumber(to), by = tonumber(by),
  }
end

-- Returns the time at which a lease must have ended to be taken back; nil: take none back, since this caller knows
-- nothing of the clock yet. A call that was under way for long looks as if the clock had jumped, so nothing is
-- concluded from it: it takes back only what had ended when it was sent.
function Clock.end_of_leases(q, view)
  if not view then return nil end
  local till = q.now <= view.latest and q.now or view.latest - view.slack
  return q.jump and till - q.jump.by or till
end

-- Several clients see the same jump: the first report counts, and only a longer jump takes its place.
local function report_jump(jump, view, visibility)
  local is_known = jump and view.by <= jump.by + view.slack
  local seen = is_known and jump or view
  return {from = seen.from, to = seen.to, by = seen.by, ends = max(is_known and jump.ends or 0, seen.to + visibility)}
end

-- Notes the jump that counts after this call. A machine that stood still sees a jump, too; a caller whose view was
-- right before and is right now disproves it.
function Clock.update_jump(q, view, known, visibility)
  local jump = Clock.read_jump(known, q.now)
  if view and view.from then jump = report_jump(jump, view, visibility) end
  -- This caller has agreed with the clock since before the jump, more exactly than the jump was long: so there was
  -- none.
  if jump and view and view.since <= jump.from and q.now <= view.latest and view.slack < jump.by then jump = nil end
  local text = jump and format('%.0f %.0f %.0f %.0f', jump.from, jump.to, jump.by, jump.ends) or ''
  State.put_odd(q, 'jump', text)
  q.jump = jump and Clock.read_jump(text, q.now)
end

-- Says whether a lease with this score is live.
function Clock.is_live(q, score)
  if not score then return false end
  local ends, jump = score + 0, q.jump
  -- Granted before the jump: its holder counts by his own clock, which did not jump.
  if jump and ends < jump.to then ends = ends + jump.by end
  return ends > q.now
end
