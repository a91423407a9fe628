-- Redis does not roll a script back: a key of the wrong type must be found before the first effect.
redis.call('ZCARD', ready)
redis.call('XLEN', notifications)
redis.call('XLEN', later)
redis.call('ZCARD', delayed)
redis.call('HLEN', attempts)
redis.call('ZCARD', dedup_index)
for i = 1, #order do redis.call('XLEN', keys[order[i]]) end
