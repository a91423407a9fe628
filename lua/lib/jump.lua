-- Jumps of the server's clock. Of the last one `meta` keeps "from to by ends": a client agreed with the clock at `from`, at
-- `to` it was `by` ms ahead of what that client expected. A lease that ends before `to` was granted before the jump, so it
-- ends `by` later than its deadline says. That holds until `ends`, one lease time later; and if the clock goes back below
-- `to`, the deadlines are right again.
local function jump_of(text, now)
  local from, to, by, ends = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
  if from and now >= tonumber(to) and now < tonumber(ends) then
    return {from = tonumber(from), to = tonumber(to), by = tonumber(by), ends = tonumber(ends)}
  end
end
