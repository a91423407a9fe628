-- The shard key of a message that counts and was delivered or delayed, nil of any other; it is forgotten here.
local function owner_of(handle)
  local key = redis.call('HGET', owners, handle)
  if key then redis.call('HDEL', owners, handle) end
  return key
end
