-- The counterpart of `attempts_of`, kept as "count|streams|tag|last error".
local function note_attempts(handle, count, hand, last_error, tag)
  redis.call('HSET', attempts, handle, count .. '|' .. hand .. '|' .. (tag or '') .. '|' .. last_error)
end
