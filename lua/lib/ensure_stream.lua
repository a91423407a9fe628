-- Every declared key exists at all times: a missing one turns each call into TRYAGAIN while its slot moves.
-- Sorted sets, hashes and the set keep a sentinel that no reader ever sees; streams exist empty.
local function ensure_stream(key)
  if redis.call('EXISTS', key) == 0 then
    redis.call('XADD', key, '0-1', 's', '')
    redis.call('XDEL', key, '0-1')
  end
end
