-- What is known of a message that was given back or delayed: count, streams it may be promoted to, last error.
local function attempts_of(handle)
  local text = redis.call('HGET', attempts, handle)
  if not text then return 0, '', '' end
  local count, hand, last_error = string.match(text, '^(%d+)|([%d,-]*)|(.*)$')
  return tonumber(count), hand, last_error
end
