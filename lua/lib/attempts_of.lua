-- What the note on a message says that was given back, delayed or redriven: deliveries, the streams it may go to, the last
-- error, whether it was rejected, since when it has been deliverable (ms; '' if that is not known).
--- @include lib/doomed
local function told_by(text)
  if not text then return 0, '', '', false, '' end
  local count, since, mark, hand, last_error = string.match(text, '^(%d+)@?(%d*)|(%-?)([%d,]*)|(.*)$')
  return tonumber(count), hand, last_error, mark == DOOMED, since
end
