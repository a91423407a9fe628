-- Whether a message's own deadline is over.
local function lapsed(fields)
  local ends = string.match(attributes_of(fields), ' x(%d+)')
  return ends and tonumber(ends) <= now
end
