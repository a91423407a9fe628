#!lua
-- bind: add bindings to a router, or remove them. Each that changes moves the version by one and is one entry of the
-- stream of changes, whose id is that version: who follows sees a gap. The stamp, the time of the last change, is in
-- that entry, too: when Redis lost its last changes and made others, their versions are the same and the stamps are not.
-- KEYS[1] bindings: 'pattern queue' by member; under '' the version, under ' ' the stamp
-- KEYS[2] changes: what followers read
-- ARGV[1] verb: '+' | '-'
-- ARGV[2] most: how many bindings there may be
-- ARGV[3] kept: about how many changes are kept for followers; with more bindings so many, at most ten times as many:
--   who is further behind than there are bindings is quicker by loading them
-- ARGV[4] seen: the version that the caller knows
-- ARGV[5..] members: 'pattern queue'
-- Reply: {'OK', version, {0 | 1, ...}} | {'MOVED', version} if one of them changed since | {'FULL', bindings}
--        | {'DAMAGED', version}
--- @use bindings
local q = {bindings = KEYS[1], changes = KEYS[2], kept = tonumber(ARGV[3])}
local verb, most, seen = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local members, named = {}, {}
for i = 5, #ARGV do members[i - 4], named[ARGV[i]] = ARGV[i], true end
redis.call('XLEN', q.changes) -- a key of another type fails the call before its first effect

local fields = redis.call('HLEN', q.bindings)
local bound = fields - 2 -- the version and the stamp are fields, too
if verb == '+' and bound + #members > most and bound + count_unbound(q, members) > most then return {'FULL', bound} end
q.kept = math.max(q.kept, math.min(fields, 10 * q.kept))

local time = redis.call('TIME')
local stamp, version = time[1] .. '.' .. time[2], '0'
local last_stamp = redis.call('HGET', q.bindings, ' ')
if last_stamp then
  version = redis.call('HGET', q.bindings, '') or ''
  if not is_version(version) then return {'DAMAGED', version} end
end
if is_changed_since(q, tonumber(version), seen, named) then return {'MOVED', version} end

if not last_stamp then create_router(q, stamp) end
local results = {}
for i, member in ipairs(members) do
  results[i] = apply_change(q, verb, member)
  if results[i] == 1 then version, last_stamp = record_change(q, verb, member, stamp), stamp end
end
redis.call('HSET', q.bindings, ' ', last_stamp or stamp) -- also if nothing changed: WAIT waits for what a call wrote
return {'OK', version, results}
