-- An entry's fields: shard key, payload under its tag, and only where there are any: attributes, headers.
local function put(key, id, at, attributes, headers)
  if attributes == '' and headers == '' then
    redis.call('XADD', key, id, mark, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
    return
  end
  local fields = {mark, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]}
  if attributes ~= '' then fields[5], fields[6] = 'm', attributes end
  if headers ~= '' then fields[#fields + 1], fields[#fields + 2] = 'h', headers end
  redis.call('XADD', key, id, unpack(fields)) -- at most 8
end
-- Into the store of messages that are not due yet.
--- @include lib/timed
local function put_later(id, at, attributes, headers, delay)
  put(later, id, at, attributes, headers)
  redis.call('ZADD', delayed, timed('d', mark == 'K' and ARGV[at + 1], now + delay), 'd:' .. id)
  redis.call('HSET', attempts, 'd:' .. id, string.format('0@%.0f|%s|', now + delay, spelled(ARGV[at])))
  if mark == 'K' then redis.call('HSET', owners, 'd:' .. id, ARGV[at + 1]) end
  earliest = earliest or delay < 5000
  return 'd'
end
