-- How many of a timed index are not due yet: all but those that are, of bucket 0 and of the buckets that may have any.
--- @include lib/span
local function not_due_in(index, kind)
  local left = redis.call('ZCOUNT', index, '(' .. now, '(9000000000000000')
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now)) do
    if string.sub(member, 1, 1) == kind then
      local start = string.sub(member, 2) * SPAN
      left = left - redis.call('ZCOUNT', index, start, start + now)
    end
  end
  return left
end
