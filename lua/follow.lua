#!lua flags=no-writes
-- follow: what changed in a router since a version.
-- KEYS[1] bindings: version and stamp
-- KEYS[2] changes: one entry per version
-- ARGV[1] stamp: of the bindings that the caller has, '' for none
-- ARGV[2] version: of the bindings that the caller has
-- ARGV[3] count: how many changes at most
-- Reply: {'OK', stamp of the last of these changes, version now, {verb, member, ...}, how many bindings there are now}
--   | {'RELOAD', stamp now, version now} | {'NONE'} | {'DAMAGED', version}
local bindings, changes = KEYS[1], KEYS[2]
local known, have, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', bindings, ' ', '')
local stamp, version = state[1], state[2]
if not stamp then return {'NONE'} end
if not version or not string.match(version, '^%d+$') or #version > 15 then return {'DAMAGED', version or ''} end
local bound = redis.call('HLEN', bindings) - 2
if tonumber(version) == have and stamp == known then return {'OK', stamp, version, {}, bound} end
if tonumber(version) <= have then return {'RELOAD', stamp, version} end

local entries = redis.call('XRANGE', changes, string.format('%.0f-0', have), '+', 'COUNT', count + 1)
local flat = {}
for at, entry in ipairs(entries) do
  local fields = entry[2]
  if entry[1] ~= string.format('%.0f-0', have + at - 1) then break end -- trimmed, or not ours
  if at == 1 then
    if fields[4] ~= known then break end
  else
    flat[#flat + 1] = fields[1]
    flat[#flat + 1] = fields[2]
    known = fields[4] or ''
  end
end
if not flat[1] then return {'RELOAD', stamp, version} end
return {'OK', known, version, flat, bound}
