-- Redis does not roll a script back: a key of the wrong type must be found before the first effect. What this call
-- cannot touch is left out, and so is the one stream of a single message: adding to it is the first effect.
redis.call('ZCARD', ready)
redis.call('ZCARD', dedup_index)
if waiting_until > now then redis.call('XLEN', notifications) end
if count > 1 then
  for i = 10, 9 + declared do redis.call('XLEN', KEYS[i]) end
end
if count > 1 or ARGV[#ARGV] ~= '' then
  redis.call('XLEN', later)
  redis.call('ZCARD', delayed)
  redis.call('HLEN', attempts)
end
