-- Which of these tokens still hold their lease. A lease ends at its deadline by the server's clock, reaped or not;
-- while reaping is paused (the clock ran ahead), being in the index is enough.
local state = redis.call('HMGET', meta, 'hold', 'waiting', 'streams', 'fair', 'max_in_flight', 'journal')
--- @include lib/span
local held_until = tonumber(state[1] or '0')
local any_cancelled = redis.call('SCARD', cancelled) > 1
local function is_live(deadline)
  return deadline and (deadline % SPAN > now or held_until > now)
end
