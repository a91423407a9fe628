#!lua flags=no-writes
-- journal: some of what happened to the queue's messages, oldest first (docs/journal.md).
-- KEYS[1] meta: the queue's id, number of the newest event
-- KEYS[2] journal: what happened to the messages
-- ARGV[1] after: number of the last event that the caller has seen
-- ARGV[2] most: events to return, and those beyond of the entry that holds the last of them
-- Reply: {the queue's id, number of the newest event, 1 if there are more, {{id, {field, value}}, ...}}
--        | {} when there is no such queue
local meta, journal = KEYS[1], KEYS[2]
local after, most = ARGV[1], tonumber(ARGV[2])
local created, queue_id, newest = unpack(redis.call('HMGET', meta, 'created', 'id', 'events')) -- at most 3: the fields
if not created then return {} end
queue_id = queue_id or created -- a queue of an earlier version is told by when it was created
local rows, found, from = {}, 0, '(' .. after .. '-18446744073709551615'
repeat
  local page = redis.call('XRANGE', journal, from, '+', 'COUNT', 32)
  for _, entry in ipairs(page) do
    if found >= most then return {queue_id, newest, 1, rows} end
    -- The first line of an entry's value has one letter for each event. An entry that something else wrote counts as one
    -- event: otherwise a page of such entries would never end.
    local id, version, value = entry[1], entry[2][1], entry[2][2]
    local letters = version == '1' and string.find(value, '\n', 1, true) or 2
    found, rows[#rows + 1], from = found + math.max(1, letters - 1), entry, '(' .. id
  end
until #page < 32
return {queue_id, newest, 0, rows}
