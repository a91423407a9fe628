-- The queue's bounds: what would go beyond is refused whole.
local known, repeated = 0, {}
if keyed > 0 then
--- @include lib/repeats
end
if max_len > 0 and state[2] + state[6] - state[5] + count - known > max_len then return {'FULL', 'max_len'} end
-- More than comes in, so that little is left after a rush; also when no more come, now and then.
if state[2] % 32 < count then
  forget_old(lanes, 64)
  forget_old(tallies, 64)
  if keyed == 0 then forget_old(dedup_index, 64) end
end
if keyed > known then
  forget_old(dedup_index, 2 * keyed + 4)
  if redis.call('ZCARD', dedup_index) - 1 + keyed - known > max_dedup then return {'FULL', 'max_dedup'} end
end
