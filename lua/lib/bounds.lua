-- The queue's bounds: what would go beyond is refused whole.
local known, repeated = 0, {}
if keyed > 0 then
--- @include lib/repeats
end
if max_len > 0 and state[2] + state[6] - state[5] + count - known > max_len then return {'FULL', 'max_len'} end
if keyed > known then
  forget_old(keyed + 4)
  if redis.call('ZCARD', dedup_index) - 1 + keyed - known > max_dedup then return {'FULL', 'max_dedup'} end
end
