-- Leases that are over, and that no read has taken back yet. A verb that meets such a message judges it by the time, as
-- the next read will.
local MOST_ENDED = 4000 -- that one call looks at: with more, the others are as they were last written

-- Returns when a lease must have ended by its score, so that the next read takes it back. (Leases that were granted
-- before a jump of the clock end later: clock.lua.)
function Ended.till(q)
  if q.odd.jump and not q.jump then q.jump = Clock.read_jump(q.odd.jump, q.now) end
  return q.jump and q.now - q.jump.by or q.now
end

-- Says whether there may be any: the state knows when the first lease ends.
function Ended.may_be_some(q)
  if not q.lease_at then q.lease_at = call('HGET', q.keys[META], 'lease_at') + 0 end
  return q.lease_at <= q.now
end

-- Returns tokens and when each of their leases ended, {token, ms, ...}: those first that ended first, at most `most`.
function Ended.list(q, most)
  if not Ended.may_be_some(q) then return {} end
  return call('ZRANGEBYSCORE', q.keys[LEASES], '-inf', Ended.till(q), 'WITHSCORES', 'LIMIT', 0, most)
end

-- Returns the token of a message whose lease is over, nil if it is not. One look serves all messages of a call.
function Ended.token_of(q, place, id)
  local tokens = q.ended_tokens
  if not tokens then
    tokens = {}
    q.ended_tokens = tokens
    local list = Ended.list(q, MOST_ENDED)
    for at = 1, #list, 2 do tokens[match(list[at], '^[^:]+:[^:]+') or ''] = list[at] end
  end
  return tokens[place .. ':' .. id]
end

-- Says whether a delivery was the last one that its message gets.
function Ended.is_last(q, attempt) return q.rules.deliveries > 0 and attempt + 0 >= q.rules.deliveries end
