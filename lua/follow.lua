#!lua flags=no-writes
-- follow: what changed in a router since a version.
-- KEYS[1] bindings: version and stamp
-- KEYS[2] changes: one entry per version
-- ARGV[1] stamp: of the bindings that the caller has, '' for none
-- ARGV[2] version: of the bindings that the caller has
-- ARGV[3] count: how many changes at most
-- Reply: {'OK', stamp of the last of these changes, version now, {verb, member, ...}, how many bindings there are now}
--   | {'RELOAD', stamp now, version now} | {'NONE'} | {'DAMAGED', version}
--- @use bindings
local q = {bindings = KEYS[1], changes = KEYS[2]}
local known, have, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local stamp, version = unpack(redis.call('HMGET', q.bindings, ' ', '')) -- at most 2: the fields
if not stamp then return {'NONE'} end
if not version or not is_version(version) then return {'DAMAGED', version or ''} end
local bound = redis.call('HLEN', q.bindings) - 2
if tonumber(version) == have and stamp == known then return {'OK', stamp, version, {}, bound} end
if tonumber(version) <= have then return {'RELOAD', stamp, version} end

local changes, last_stamp = read_changes(q, have, known, count)
if not changes[1] then return {'RELOAD', stamp, version} end
return {'OK', last_stamp, version, changes, bound}
