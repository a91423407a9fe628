-- What is known of a message that was given back, delayed or redriven: deliveries, the streams it may go to, the last
-- error, since when it has been deliverable (ms; '' if that is not known).
local function told_by(text)
  if not text then return 0, '', '', '' end
  local count, since, hand, last_error = string.match(text, '^(%d+)@?(%d*)|([%d,-]*)|(.*)$')
  return tonumber(count), hand, last_error, since
end
local function attempts_of(handle)
  return told_by(redis.call('HGET', attempts, handle))
end
