-- The parts of a lease token "place:id:count:holder": place, entry id, delivery count.
local function split_token(token)
  local place, id, count = string.match(token, '^(%w+):([%d-]+):(%d+):')
  return place, id, tonumber(count)
end
