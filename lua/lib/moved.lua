-- Whether one of these members was changed after the version that the caller saw, or that cannot be told any more. Then
-- this may be a copy of a call that comes late, and would undo what its own caller did since.
local RECENT = 1000
local function is_moved(version, seen)
  if seen == version then return false end
  if seen > version or version - seen > RECENT then return true end
  local entries, named = redis.call('XRANGE', changes, string.format('%.0f-0', seen + 1), '+', 'COUNT', RECENT), {}
  if #entries < version - seen then return true end
  for _, entry in ipairs(entries) do named[entry[2][2]] = true end
  for i = 5, #ARGV do
    if named[ARGV[i]] then return true end
  end
  return false
end
