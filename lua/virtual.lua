-- The virtual time: the service of a shard key that is neither ahead of the others nor behind them, in 0.1 ms by
-- weight. A shard key that begins to wait, or comes back, has received as much: so idle time gives no credit, and idle
-- capacity that one has used alone makes no debt.
--
-- It is the least service of those that wait for their turn. But one may wait far behind for hours: its job does not
-- end, or it tells a part of its costs, so what it has in flight keeps it from more. It must hold up nobody: so the
-- virtual time also follows the service of the one that is served next, though slowly. For one that is far ahead is
-- served, too, if it alone has nothing in flight, and the virtual time must not leap to it. It never goes back.
-- (docs/fairness.md)
--
-- Two fields of the state say how turns go on: `seen_at`, when the virtual time moved last, or was looked at, in ms, by
-- a read, or by a write where no read came for long; and `due_turns`, what is due to those that wait beside the streams
-- (`share_of_streams`), in eighths of a message, and 8. It is looked at only where some wait and the streams have more.
local PACE = 2 -- s of service by which it follows in 1 s: more than one handler gives to one that it holds up
local LONG = 1000 -- ms: as many count as passed at most, however long nobody looked, also if the clock was set ahead
local SHORT = 10 -- ms in which it is looked at once, so that few reads write when that was
local NONE_DUE = 8 -- in the field `due_turns`: so it has no sign
local MOST_LEVELS = 8 -- numbers in flight at which shard keys are looked at

-- Returns the least service of those that wait for their turn, or one that is at most `enough`. Those with as many in
-- flight lie together, by service: so it is that of the first of some such level. `score` is the first of all.
local function least_service(q, virtual, score, enough, levels, first_from, a)
  local least, level = Accounts.service_in(score, virtual)
  for _ = 2, levels do
    if least <= enough then break end
    local other = first_from(q, Accounts.end_of_level(level, virtual), a)
    if not other then break end
    local service
    service, level = Accounts.service_in(other, virtual)
    least = min(least, service)
  end
  return least
end

-- Returns what a virtual time is now that was looked at so many ms ago, nil if it stays. The one with this score is
-- served next. At most so many levels are looked at, none if those in the order are not all that wait; `first_from`
-- returns the first score from one on, among the children of `a` if it is a parent.
function Virtual.follow(q, virtual, passed, score, levels, first_from, a)
  if abs(passed) < SHORT then return nil end
  local slowly = virtual + PACE * 10 * max(0, min(LONG, passed))
  local service = Accounts.service_in(score, virtual)
  if service > slowly then
    service = levels == 0 and slowly
      or max(slowly, least_service(q, virtual, score, slowly, levels, first_from, a))
  end
  -- While it stays, what it may follow by is saved up, as far as it counts.
  if service <= virtual and abs(passed) < LONG / 2 then return nil end
  return max(virtual, service)
end

local function first_turn_from(q, score)
  local below = '(' .. spell(Accounts.IDLE)
  local other = call('ZRANGEBYSCORE', q.keys[TURNS], spell(score), below, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return other and other + 0
end

-- Returns how many ms ago it was looked at last.
local function passed_since_seen(q)
  q.seen_at = tonumber(q.seen_at or call('HGET', q.keys[META], 'seen_at')) or 0
  return q.now - q.seen_at
end

-- Returns how much is due to those that wait for their turn beside the streams, in eighths of a message; below 0 if
-- they had it before.
function Virtual.due_turns(q) return (tonumber(call('HGET', q.keys[META], 'due_turns')) or NONE_DUE) - NONE_DUE end

-- (What they cannot take now is not due to them later.)
function Virtual.put_due_turns(q, due) State.put(q, 'due_turns', spell(min(7, due) + NONE_DUE)) end

-- Moves it on. The shard key with this score, the first in `turns`, is served next.
function Virtual.advance(q, score)
  -- What is in a stream was written by one that was not ahead. So while there is something, those in `turns` are not
  -- all that wait.
  local levels = q.shared > 0 and 0 or min(MOST_LEVELS, q.turns)
  local moved = Virtual.follow(q, q.virtual, passed_since_seen(q), score, levels, first_turn_from)
  if not moved then return end
  q.virtual, q.seen_at = moved, q.now
  State.put(q, 'seen_at', spell(q.now))
end

-- Moves it on for one that begins to wait, if no read has for long.
function Virtual.look_again(q, a)
  if a.taken + a.behind + a.flight > 0 or abs(passed_since_seen(q)) < LONG then return end
  local score = call('ZRANGE', q.keys[TURNS], 0, 0, 'WITHSCORES')[2]
  if score and score + 0 < Accounts.IDLE then Virtual.advance(q, score + 0) end
end
