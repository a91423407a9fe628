-- Types of keys. Redis does not roll a script back, so a call looks at all keys that it may touch before its first effect.

-- Fails if one of these keys has another type.
local function check_types(hashes, sorted_sets, streams)
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do redis.call('ZCARD', key) end
  for _, key in ipairs(streams) do redis.call('XLEN', key) end
end
