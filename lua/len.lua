#!lua flags=no-writes
-- len: messages that still ask for work now: backlog + in flight. What is delayed counts once it is due.
-- KEYS[1] meta: counters
-- KEYS[2] delayed: handles by due time in ms
-- Reply: a number, or -1 when there is no such queue
local meta, delayed = KEYS[1], KEYS[2]
--- @include lib/server_ms
local state = redis.call('HMGET', meta, 'n', 'adopted', 'gone')
if not state[1] then return -1 end
local not_due = redis.call('ZCOUNT', delayed, '(' .. server_ms(), '(9000000000000000')
return state[1] + state[2] - state[3] - not_due
