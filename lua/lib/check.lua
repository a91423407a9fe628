-- Redis does not roll a script back: what a call may touch is looked at before its first effect, so that a key of
-- another type fails the call whole.
local function check(hashes, sorted, streams)
  for _, key in ipairs(hashes) do redis.call('HLEN', key) end
  for _, key in ipairs(sorted) do redis.call('ZCARD', key) end
  for _, key in ipairs(streams) do redis.call('XLEN', key) end
end
