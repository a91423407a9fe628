-- The two indexes by time: `leases` holds lease tokens by deadline, `delayed` holds handles by due time. A score is
-- bucket * 2^42 + time in ms. Bucket 0 is for what does not count in the admission window, one of 2,045 others is chosen by
-- the shard key, so that a shard key with many messages that come due together delays only itself.
local SPAN = 4398046511104

-- Counts the members of an index that are not due yet: all of them, less those that are due in bucket 0 and in the buckets
-- that `q.due` names. `kind` is the index's letter in `q.due`: 'l' for leases, 'd' for delayed. After a jump of the clock,
-- the leases from before the jump end later, so they are counted again.
local function count_not_due(q, index, kind, jump)
  local left, starts = redis.call('ZCOUNT', index, '(' .. q.now, '(9000000000000000'), {0}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q.due, '-inf', q.now)) do
    if string.sub(member, 1, 1) == kind then
      local start = string.sub(member, 2) * SPAN
      starts[#starts + 1] = start
      left = left - redis.call('ZCOUNT', index, start, start + q.now)
    end
  end
  for _, start in ipairs(jump and starts or {}) do
    local from, upto = string.format('(%.0f', start + q.now - jump.by), string.format('(%.0f', start + jump.to)
    left = left + redis.call('ZCOUNT', index, from, upto)
  end
  return left
end
