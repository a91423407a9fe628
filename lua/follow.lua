#!lua flags=no-writes
-- follow: what changed in a router since a version.
-- KEYS[1] bindings: version and epoch
-- KEYS[2] changes: one entry per version
-- ARGV[1] epoch: of the bindings that the caller has, '' for none
-- ARGV[2] version: of the bindings that the caller has
-- ARGV[3] count: how many changes at most
-- Reply: {'OK', epoch, version now, {verb, member, ...}} | {'RELOAD', epoch, version now} | {'NONE'} | {'DAMAGED', version}
local bindings, changes = KEYS[1], KEYS[2]
local known, have, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', bindings, ' ', '')
local epoch, version = state[1], state[2]
if not epoch then return {'NONE'} end
if not version or not string.match(version, '^%d+$') or #version > 15 then return {'DAMAGED', version or ''} end
if epoch ~= known or tonumber(version) < have then return {'RELOAD', epoch, version} end
if tonumber(version) == have then return {'OK', epoch, version, {}} end

local entries = redis.call('XRANGE', changes, string.format('%.0f-0', have + 1), '+', 'COUNT', count)
local flat = {}
for at, entry in ipairs(entries) do
  if entry[1] ~= string.format('%.0f-0', have + at) then break end -- trimmed, or not ours
  flat[#flat + 1] = entry[2][1]
  flat[#flat + 1] = entry[2][2]
end
if not flat[1] then return {'RELOAD', epoch, version} end
return {'OK', epoch, version, flat}
