-- What is known of a message that was given back, delayed or held in the overflow: deliveries, the streams it may go
-- to, its tag in the overflow, the last error.
local function attempts_of(handle)
  local text = redis.call('HGET', attempts, handle)
  if not text then return 0, '', '', '' end
  local count, hand, tag, last_error = string.match(text, '^(%d+)|([%d,-]*)|(%d*)|(.*)$')
  return tonumber(count), hand, last_error, tag
end
