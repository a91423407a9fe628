#!lua
-- delete_dead: delete dead letters for good: those with these message ids, these entries, or those that died long ago.
-- KEYS[1] meta: counters, for how long dead letters are kept
-- KEYS[2] dead: dead letters
-- KEYS[3] moved: where a dead letter lies, by message id
-- KEYS[4] journal: what happened to the messages
-- ARGV[1] client: what the journal calls the caller
-- ARGV[2] age: ms since they died, at least, of those that are deleted by age; 'ttl' = what the queue says; '' = none
-- ARGV[3] most: by age
-- ARGV[4] count: of message ids
-- ARGV[5..] names: message ids, then entry ids
-- Reply: {how many were deleted, 1 when there may be more that died so long ago}
--- @use time, keys, journal, dead_letters
local q = {meta = KEYS[1], dead = KEYS[2], moved = KEYS[3], journal = KEYS[4], now = read_clock()}
local client, age, most, ids = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
check_types({q.meta, q.moved}, {}, {q.dead, q.journal})
local journal_size, dead_ttl, exists = unpack(redis.call('HMGET', q.meta, 'journal', 'dead_ttl', 'epoch')) -- at most 3: the fields
if not exists then return {0, 0} end
q.journal_size = tonumber(journal_size or '0')
if q.journal_size > 0 then begin_events(q) end

local deleted, found = 0, {}
for at = 5, #ARGV do
  local entry_id = ARGV[at]
  if at < 5 + ids then entry_id = string.match(redis.call('HGET', q.moved, ARGV[at]) or '', '^x:(.*)$') end
  if entry_id and delete_letter(q, entry_id) then deleted = deleted + 1 end
end

if age == 'ttl' then age = dead_ttl or '' end
if age ~= '' then
  local before = string.format('(%.0f', q.now - age + 1)
  found = redis.call('XRANGE', q.dead, '-', before, 'COUNT', most)
  for _, entry in ipairs(found) do
    if delete_letter(q, entry[1]) then deleted = deleted + 1 end
  end
end
if deleted > 0 then redis.call('HINCRBY', q.meta, 'dead_deleted', deleted) end
if q.events then save_events(q, client) end
return {deleted, #found == most and #found > 0 and 1 or 0}
