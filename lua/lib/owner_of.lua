-- The shard key of a message that counts and was delayed, nil of any other; it is forgotten here, and delayed no more.
--- @include lib/count_delayed
local function owner_of(handle)
  local key = redis.call('HGET', owners, handle)
  if key then
    redis.call('HDEL', owners, handle)
    count_delayed(key, -1)
  end
  return key
end
