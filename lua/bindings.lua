-- A router's bindings. The hash `bindings` has each binding as a field, the version under '' and the stamp under ' '.
-- Each change moves the version by one and is one entry of the stream `changes`, whose id is that version: a follower
-- sees a gap. The stamp, the time of the last change and the nonce of its call, is in that entry, too: when Redis lost
-- its last changes and made others, their versions are the same and the stamps are not.
local RECENT = 1000 -- versions that are looked through for a member that changed

-- Says whether a text can be a version: a whole number that Lua holds without losing digits.
local function is_version(text) return match(text, '^%d+$') and #text <= 15 end

-- Returns the id that the change to a version has in the stream of changes.
local function change_id(version) return format('%.0f-0', version) end

-- Says whether any of the members, a set, was changed after the version that the caller saw, or whether that is not
-- known any more. The call may then be a copy that comes late, and would undo what its own caller did since.
local function is_changed_since(r, version, seen, members)
  if seen == version then return false end
  if seen > version or version - seen > RECENT then return true end
  local entries = call('XRANGE', r.changes, change_id(seen + 1), '+', 'COUNT', RECENT)
  -- Some were trimmed: one of them may have changed a member.
  if #entries < version - seen then return true end
  for _, entry in ipairs(entries) do
    if members[entry[2][2]] then return true end
  end
  return false
end

-- Returns the members that an earlier try of a call has changed, a set: the stamps of these changes have its nonce. Nil
-- if it has changed none, as far as recent changes tell.
local function changed_before(r, nonce, members)
  local own
  for _, entry in ipairs(call('XREVRANGE', r.changes, '+', '-', 'COUNT', RECENT + #members)) do
    local fields = entry[2]
    if match(fields[4] or '', '%.([^.]*)$') == nonce then
      own = own or {}
      own[fields[2]] = true
    end
  end
  return own
end

-- Reads the changes that follow version `have`, at most `count` of them, as {verb, member, verb, member, ...}, and the
-- stamp of the last one. The entry of `have` itself must still be there and carry the stamp that the caller knows, and
-- the ids must follow each other; otherwise, the reply has only the changes up to there.
local function read_changes(r, have, stamp, count)
  local entries = call('XRANGE', r.changes, change_id(have), '+', 'COUNT', count + 1)
  local flat = {}
  for at, entry in ipairs(entries) do
    local fields = entry[2]
    if entry[1] ~= change_id(have + at - 1) then break end -- those before were trimmed, or others wrote this one
    if at == 1 then
      if fields[4] ~= stamp then break end
    else
      flat[#flat + 1], flat[#flat + 2] = fields[1], fields[2]
      stamp = fields[4] or ''
    end
  end
  return flat, stamp
end

-- Counts the members, a set, that are not bound yet.
local function count_unbound(r, members)
  local new = 0
  for member in pairs(members) do new = new + 1 - call('HEXISTS', r.bindings, member) end
  return new
end

-- Starts the stream of changes again and writes the version 0 with this stamp, for a router that has no binding yet.
local function create_router(r, stamp)
  call('DEL', r.changes)
  call('XADD', r.changes, '0-1', '', '')
  call('XDEL', r.changes, '0-1')
  call('HSET', r.bindings, '', 0, ' ', stamp)
end

-- Adds a binding ('+') or removes it ('-'). Returns 1 if that changed anything and 0 if not.
local function apply_change(r, verb, member)
  if verb == '+' then return call('HSETNX', r.bindings, member, 1) end
  return call('HDEL', r.bindings, member)
end

-- Moves the version by one and appends the change to the stream, which keeps about `r.kept` of them. Returns the
-- version.
local function record_change(r, verb, member, stamp)
  local version = call('HINCRBY', r.bindings, '', 1)
  local id = change_id(version)
  local added = pcall_redis('XADD', r.changes, 'MAXLEN', '~', r.kept, id, verb, member, '', stamp)
  if type(added) == 'table' and added.err then
    -- Something else wrote entries with later ids. The stream starts again, so those who follow load all bindings.
    call('DEL', r.changes)
    call('XADD', r.changes, id, verb, member, '', stamp)
  end
  return spell(version)
end

-- Applies the changes. Returns the version after them, and what each did.
local function apply_changes(r, verb, members, version, stamp)
  local results = {}
  local last_stamp = call('HGET', r.bindings, ' ')
  if not last_stamp then create_router(r, stamp) end
  for i, member in ipairs(members) do
    results[i] = apply_change(r, verb, member)
    -- A binding that was there already moves no version: followers would load for nothing.
    if results[i] == 1 then version, last_stamp = record_change(r, verb, member, stamp), stamp end
  end
  call('HSET', r.bindings, ' ', last_stamp or stamp) -- also if nothing changed: WAIT waits for what a call wrote
  return version, results
end

-- Tells a call that is repeated what its first try did. For a member that comes twice the first one changed something.
local function tell_again(r, members, own)
  local results = {}
  for i, member in ipairs(members) do results[i], own[member] = own[member] and 1 or 0, nil end
  call('HSET', r.bindings, ' ', call('HGET', r.bindings, ' ') or '') -- WAIT waits for what a call wrote
  return {'OK', call('HGET', r.bindings, '') or '0', results}
end

-- @verb bind: add bindings to a router, or remove them.
-- KEYS[1] bindings: 'pattern queue' by member; under '' the version, under ' ' the stamp
-- KEYS[2] changes: what followers read
-- ARGV[1] verb: '+' | '-'
-- ARGV[2] most: how many bindings there may be
-- ARGV[3] kept: about how many changes are kept for followers; with more bindings up to ten times as many: a follower
--   that is further behind than there are bindings is quicker by loading them
-- ARGV[4] seen: the version that the caller knows
-- ARGV[5] nonce: of this call, letters, digits, '-' and '_'
-- ARGV[6] repeated: '1' when an earlier try of this call may have happened: then the reply says what that one changed
-- ARGV[7..] members: 'pattern queue'
-- Reply: {'OK', version, {0 | 1, ...}} | {'MOVED', version} if one of them changed since | {'FULL', bindings}
--        | {'DAMAGED', version}
function verbs.bind(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'bindings', 'changes'}, 'router-')
  Arguments.check(ARGV, {'change', 'bindings', 'bindings', 'number', 'word', 'flag'}, {'binding'}, 1000)
  local r = {bindings = KEYS[1], changes = KEYS[2]}
  local verb, most, seen = ARGV[1], ARGV[2] + 0, ARGV[4] + 0
  local members, named = {}, {}
  for at = 7, #ARGV do members[at - 6], named[ARGV[at]] = ARGV[at], true end
  check_types({}, {}, {r.changes})
  local own = ARGV[6] == '1' and changed_before(r, ARGV[5], members)
  if own then return tell_again(r, members, own) end
  local fields = call('HLEN', r.bindings)
  local bound = fields - 2 -- the version and the stamp are fields, too
  if verb == '+' and bound + #members > most and bound + count_unbound(r, named) > most then
    return {'FULL', bound}
  end
  r.kept = max(ARGV[3] + 0, min(fields, 10 * ARGV[3]))
  local time = call('TIME')
  local version = '0'
  if call('HGET', r.bindings, ' ') then
    version = call('HGET', r.bindings, '') or ''
    if not is_version(version) then return {'DAMAGED', version} end
  end
  if is_changed_since(r, version + 0, seen, named) then return {'MOVED', version} end
  local results
  version, results = apply_changes(r, verb, members, version, concat({time[1], time[2], ARGV[5]}, '.'))
  return {'OK', version, results}
end

-- @verb bindings | no-writes: a part of all bindings of a router.
-- KEYS[1] bindings: by member
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many
-- Reply: {cursor, {member, ...}}
function verbs.bindings(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'bindings'}, 'router-')
  Arguments.check(ARGV, {'cursor', 'count'})
  local page = call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
  local members = {}
  for at = 1, #page[2], 2 do
    local member = page[2][at]
    if member ~= '' and member ~= ' ' then members[#members + 1] = member end -- these two: the version and the stamp
  end
  return {page[1], members}
end

-- @verb follow | no-writes: what changed in a router since a version.
-- KEYS[1] bindings: version and stamp
-- KEYS[2] changes: one entry per version
-- ARGV[1] stamp: of the bindings that the caller has, '' for none
-- ARGV[2] version: of the bindings that the caller has
-- ARGV[3] count: how many changes at most
-- Reply: {'OK', stamp of the last of these changes, version now, {verb, member, ...}, how many bindings there are now}
--        | {'RELOAD', stamp now, version now} | {'NONE'} | {'DAMAGED', version}
function verbs.follow(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'bindings', 'changes'}, 'router-')
  Arguments.check(ARGV, {'stamp', 'number', 'count'})
  local r = {bindings = KEYS[1], changes = KEYS[2]}
  local known, have = ARGV[1], ARGV[2] + 0
  local stamp, version = unpack(call('HMGET', r.bindings, ' ', '')) -- at most 2: the fields
  if not stamp then return {'NONE'} end
  if not version or not is_version(version) then return {'DAMAGED', version or ''} end
  local bound = call('HLEN', r.bindings) - 2
  if version + 0 == have and stamp == known then return {'OK', stamp, version, {}, bound} end
  -- A lower version, or the same with another stamp: Redis has lost changes that this caller has.
  if version + 0 <= have then return {'RELOAD', stamp, version} end
  local changes, last_stamp = read_changes(r, have, known, ARGV[3] + 0)
  if not changes[1] then return {'RELOAD', stamp, version} end
  return {'OK', last_stamp, version, changes, bound}
end
