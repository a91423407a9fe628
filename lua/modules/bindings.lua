-- A router's bindings. The hash `bindings` has each binding as a field, the version under '' and the stamp under ' '. Each
-- change moves the version by one and is one entry of the stream `changes`, whose id is that version.
local RECENT = 1000

-- Says whether a text can be a version: a whole number that Lua holds without losing digits.
local function is_version(text)
  return string.match(text, '^%d+$') and #text <= 15
end

-- Returns the id that the change to a version has in the stream of changes.
local function change_id(version)
  return string.format('%.0f-0', version)
end

-- Says whether any of the members, a set, was changed after the version that the caller saw, or whether that cannot be
-- told any more. The call may then be a copy that comes late, and would undo what its own caller did since.
local function is_changed_since(q, version, seen, members)
  if seen == version then return false end
  if seen > version or version - seen > RECENT then return true end
  local entries = redis.call('XRANGE', q.changes, change_id(seen + 1), '+', 'COUNT', RECENT)
  if #entries < version - seen then return true end
  for _, entry in ipairs(entries) do
    if members[entry[2][2]] then return true end
  end
  return false
end

-- Reads the changes that follow version `have`, at most `count` of them, as {verb, member, verb, member, ...}, and the
-- stamp of the last one. The entry of `have` itself must still be there and carry the stamp that the caller knows, and the
-- ids must follow each other; otherwise, what was found up to there is all that is returned.
local function read_changes(q, have, stamp, count)
  local entries = redis.call('XRANGE', q.changes, change_id(have), '+', 'COUNT', count + 1)
  local flat = {}
  for at, entry in ipairs(entries) do
    local fields = entry[2]
    if entry[1] ~= change_id(have + at - 1) then break end -- the entries before were trimmed, or others wrote this one
    if at == 1 then
      if fields[4] ~= stamp then break end
    else
      flat[#flat + 1] = fields[1]
      flat[#flat + 1] = fields[2]
      stamp = fields[4] or ''
    end
  end
  return flat, stamp
end

-- Counts the members that are not bound yet.
local function count_unbound(q, members)
  local new = 0
  for _, member in ipairs(members) do new = new + 1 - redis.call('HEXISTS', q.bindings, member) end
  return new
end

-- Begins the stream of changes anew and writes the version 0 with this stamp, for a router that has no binding yet.
local function create_router(q, stamp)
  redis.call('DEL', q.changes)
  redis.call('XADD', q.changes, '0-1', '', '')
  redis.call('XDEL', q.changes, '0-1')
  redis.call('HSET', q.bindings, '', 0, ' ', stamp)
end

-- Adds a binding ('+') or removes it ('-'). Returns 1 if that changed anything and 0 if not.
local function apply_change(q, verb, member)
  if verb == '+' then return redis.call('HSETNX', q.bindings, member, 1) end
  return redis.call('HDEL', q.bindings, member)
end

-- Moves the version by one and appends the change to the stream, which keeps about `q.kept` of them. Returns the version.
local function record_change(q, verb, member, stamp)
  local version = redis.call('HINCRBY', q.bindings, '', 1)
  local id = change_id(version)
  local added = redis.pcall('XADD', q.changes, 'MAXLEN', '~', q.kept, id, verb, member, '', stamp)
  if type(added) == 'table' and added.err then
    -- Something else wrote entries with later ids. The stream begins anew, so those who follow load all bindings.
    redis.call('DEL', q.changes)
    redis.call('XADD', q.changes, id, verb, member, '', stamp)
  end
  return string.format('%.0f', version)
end
