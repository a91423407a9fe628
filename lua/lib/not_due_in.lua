-- How many of a timed index are not due yet: all but those that are, of bucket 0 and of the buckets that may have any. After a
-- jump of the clock the leases from before it end later (lib/jump).
--- @include lib/span
local function not_due_in(index, kind, jump)
  local left, starts = redis.call('ZCOUNT', index, '(' .. now, '(9000000000000000'), {0}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now)) do
    if string.sub(member, 1, 1) == kind then
      local start = string.sub(member, 2) * SPAN
      starts[#starts + 1] = start
      left = left - redis.call('ZCOUNT', index, start, start + now)
    end
  end
  for _, start in ipairs(jump and starts or {}) do
    left = left + redis.call('ZCOUNT', index, '(' .. string.format('%.0f', start + now - jump.by), '(' .. string.format('%.0f', start + jump.to))
  end
  return left
end
