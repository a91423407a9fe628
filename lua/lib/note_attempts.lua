-- The counterpart of `attempts_of`, kept as "count@since|streams|last error": since (now if not given) is when it becomes
-- deliverable again, in ms.
local function note_attempts(handle, count, hand, last_error, since)
  redis.call('HSET', attempts, handle, count .. '@' .. string.format('%.0f', math.max(0, since or now)) .. '|' .. hand .. '|' .. last_error)
end
