#!lua flags=no-writes
-- bindings: a part of all bindings of a router.
-- KEYS[1] bindings: by member
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many
-- Reply: {cursor, {member, ...}}
local bindings, cursor, count = KEYS[1], ARGV[1], ARGV[2]
local next_cursor, fields = unpack(redis.call('HSCAN', bindings, cursor, 'COUNT', count)) -- at most 2: cursor, fields
local members = {}
for at = 1, #fields, 2 do
  local member = fields[at]
  if member ~= '' and member ~= ' ' then members[#members + 1] = member end -- these two are the version and the stamp
end
return {next_cursor, members}
