-- Redis does not roll a script back: a key of the wrong type must be found before the first effect. What this call
-- cannot touch is left out, and so is the one stream of a single message: adding to it is the first effect.
if count > 1 or keyed > 0 or ARGV[#ARGV] ~= '' or undelivered[shortest(ARGV[11 + declared])] == 0 then
  redis.call('ZCARD', ready)
end
if keyed > 0 then redis.call('ZCARD', dedup_index) end
if lane_ends - now < lane_window / 2 then redis.call('ZCARD', lane_index) end
if waiting then redis.call('XLEN', notifications) end
if count > 1 then
  for i = 17, 16 + declared do redis.call('XLEN', KEYS[i]) end
end
if stride == 6 or fair then redis.call('XLEN', later) end
if stride == 6 then
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', due)
  redis.call('HLEN', attempts)
  redis.call('HLEN', owners)
end
