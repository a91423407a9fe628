-- How many messages of this call repeat one that was written before: they take no room.
local function repeats()
  local found = 0
  for at = 15 + declared, #ARGV, 6 do
    local key = string.match(ARGV[at], '^%d*|%d*|(.+)$')
    if key and dedup_result(key) then found = found + 1 end
  end
  return found
end
