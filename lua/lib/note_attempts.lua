-- The counterpart of `told_by`, kept as "count|streams|last error".
local function note_attempts(handle, count, hand, last_error)
  redis.call('HSET', attempts, handle, count .. '|' .. hand .. '|' .. last_error)
end
