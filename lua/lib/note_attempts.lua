-- What is known from now on of a message.
--- @include lib/note_of
local function note_attempts(handle, count, hand, last_error, since)
  redis.call('HSET', attempts, handle, note_of(count, hand, last_error, since))
end
