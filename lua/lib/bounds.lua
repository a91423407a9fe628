-- The queue's bounds: what would go beyond is refused whole.
local known, repeated = 0, {}
if keyed > 0 then
--- @include lib/repeats
end
if max_len > 0 and state[2] + state[6] - state[5] + count - known > max_len then return {'FULL', 'max_len'} end
-- More than comes in, so that little is left after a rush; also when no more keys come, now and then.
if keyed == 0 and state[2] % 32 < count then forget_old(64) end
if keyed > known then
  forget_old(2 * keyed + 4)
  if redis.call('ZCARD', dedup_index) - 1 + keyed - known > max_dedup then return {'FULL', 'max_dedup'} end
end
