-- Which of these tokens still hold their lease. A lease ends by the server's clock, reaped or not: at its deadline, and
-- after a jump of that clock as much later.
local state = redis.call('HMGET', meta, 'jump', 'waiting', 'streams', 'fair', 'max_in_flight', 'journal')
--- @include lib/span
--- @include lib/jump
local jump = (state[1] or '') ~= '' and jump_of(state[1], now)
local any_cancelled = redis.call('SCARD', cancelled) > 1
local function is_live(deadline)
  if not deadline then return false end
  local ends = deadline % SPAN
  return ends > now or jump and ends < jump.to and ends + jump.by > now
end
