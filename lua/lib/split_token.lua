-- The parts of a lease token "place:id:count:holder": place, entry id, delivery count. Of a message that counts in the
-- admission window ":streams:key" follows, so that whoever ends the lease knows where it belongs.
local function split_token(token)
  local place, id, count = string.match(token, '^(%w+):([%d-]+):(%d+):')
  return place, id, tonumber(count)
end
