#!lua flags=no-writes
-- journal: some of what happened to the queue's messages, oldest first (docs/journal.md).
-- KEYS[1] meta: number of the newest event
-- KEYS[2] journal: what happened to the messages
-- ARGV[1] after: number of the last event that the caller has seen
-- ARGV[2] most: events to return, and those beyond of the entry that holds the last of them
-- Reply: {when the queue was created in ms, number of the newest event, 1 if there are more, {{id, {field, value}}, ...}}
--        | {} when there is no such queue
local meta, journal = KEYS[1], KEYS[2]
local state, most = redis.call('HMGET', meta, 'created', 'events'), tonumber(ARGV[2])
if not state[1] then return {} end
local rows, found, from = {}, 0, '(' .. ARGV[1] .. '-18446744073709551615'
repeat
  local page = redis.call('XRANGE', journal, from, '+', 'COUNT', 32)
  for _, entry in ipairs(page) do
    if found >= most then return {state[1], state[2], 1, rows} end
    -- An event is a letter of the value's first line; one of something else counts, too: it must not make a page endless.
    local line = entry[2][1] == '1' and string.find(entry[2][2], '\n', 1, true) or 2
    found, rows[#rows + 1], from = found + math.max(1, line - 1), entry, '(' .. entry[1]
  end
until #page < 32
return {state[1], state[2], 0, rows}
