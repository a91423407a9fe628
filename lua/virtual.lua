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
-- The field `seen_at` of the state says how turns proceed: behind its first letter the ms when the virtual time moved
-- last, or was looked at, by a read, or by an extension where no read came for long. The letter is what is due to those
-- that wait beside the streams (`share_of_streams`), in eighths of a message: '@' for nothing, 'A' for one, '?' for one
-- that they had before.
local PACE = 2 -- s of service by which it follows in 1 s: more than one handler gives to one that it holds up
local LONG = 1000 -- ms: as many count as passed at most, however long nobody looked, also if the clock was set ahead
local NONE_DUE = 64 -- '@'
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

-- Returns the present value of a virtual time that was looked at this many ms ago, nil if it stays. The one with this
-- score is served next. `levels` is how many may wait at most, 0 if those in the order are not all that wait;
-- `first_from` returns the first score from one on, among the children of `a` if it is a parent.
function Virtual.follow(q, virtual, passed, score, levels, first_from, a)
  if passed == 0 then return nil end
  local service = Accounts.service_in(score, virtual)
  if service > virtual then
    local slowly = virtual + PACE * 10 * max(0, min(LONG, passed))
    if service > slowly then
      service = levels == 0 and slowly
        or max(slowly, least_service(q, virtual, score, slowly, min(MOST_LEVELS, levels), first_from, a))
    end
  end
  if service > virtual then return service end
  -- While it stays, the time that it may follow by is saved up, as far as it counts.
  return (passed >= LONG / 2 or passed <= -LONG / 2) and virtual or nil
end

local function first_turn_from(q, score)
  local below = '(' .. spell(Accounts.IDLE)
  local other = call('ZRANGEBYSCORE', q.keys[TURNS], spell(score), below, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return other and other + 0
end

-- Reads the field, once in a call.
local function load_seen(q)
  if q.due_turns then return end
  local text = q.seen_at or call('HGET', q.keys[META], 'seen_at') or ''
  q.seen_at, q.due_turns = sub(text, 2), (byte(text) or NONE_DUE) - NONE_DUE -- as it is spelled
end

local function save_seen(q) State.put(q, 'seen_at', char(q.due_turns + NONE_DUE) .. q.seen_at) end

local function passed_since(q) return q.now - (tonumber(q.seen_at) or 0) end

-- Returns how much is due to those that wait for their turn beside the streams, in eighths of a message; below 0 if
-- they had it before.
function Virtual.due_turns(q)
  load_seen(q)
  return q.due_turns
end

-- (What they cannot take now is not due to them later.)
function Virtual.put_due_turns(q, due)
  q.due_turns = min(7, due)
  save_seen(q)
end

-- Moves it on. The shard key with this score, the first in `turns`, is served next.
function Virtual.advance(q, score)
  load_seen(q)
  -- A message in a stream was written by a shard key that was not ahead. So while there is something, those in `turns`
  -- are not all that wait.
  local levels = q.shared > 0 and 0 or q.turns
  local moved = Virtual.follow(q, q.virtual, passed_since(q), score, levels, first_turn_from)
  if not moved then return end
  q.virtual, q.seen_at = moved, spell(q.now)
  save_seen(q)
end

-- Moves it on where no read has for long: all handlers are busy. The amounts received by those in `turns` change only
-- where leases are extended, so that is when it is looked at, and not when somebody begins to wait: a role that only
-- writes may not list who waits. Nobody is served now, so it follows nobody: those that wait for a free handler would
-- fall behind it. It rests while a stream has something, as in `advance`.
function Virtual.look_again(q)
  if q.turns == 0 or q.shared > 0 then return end
  load_seen(q)
  if abs(passed_since(q)) < LONG then return end
  local score = call('ZRANGE', q.keys[TURNS], '0', '0', 'WITHSCORES')[2]
  if not score or score + 0 >= Accounts.IDLE then return end
  local least = least_service(q, q.virtual, score + 0, q.virtual, min(MOST_LEVELS, q.turns), first_turn_from)
  if least <= q.virtual then return end
  q.virtual, q.seen_at = least, spell(q.now)
  save_seen(q)
end
