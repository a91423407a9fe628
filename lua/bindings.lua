#!lua flags=no-writes
-- bindings: a part of all bindings of a router.
-- KEYS[1] bindings: by member
-- ARGV[1] cursor: where to go on, '0' to start
-- ARGV[2] count: about how many
-- Reply: {cursor, {member, ...}}
local bindings = KEYS[1]
local found = redis.call('HSCAN', bindings, ARGV[1], 'COUNT', ARGV[2])
local members = {}
for at = 1, #found[2], 2 do
  if found[2][at] ~= '' and found[2][at] ~= ' ' then members[#members + 1] = found[2][at] end
end
return {found[1], members}
