-- Of a lease token: the streams that the message may go to and its shard key, '' and nil unless it counts.
local function owner_in(token)
  local hand, at = string.match(token, '^%w+:[%d-]+:%d+:[^:]*:([%d,]*):()')
  return hand or '', at and string.sub(token, at)
end
