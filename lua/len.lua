#!lua flags=no-writes
-- len: messages that still ask for work now: backlog + in flight. What is delayed counts once it is due.
-- KEYS[1] meta: counters
-- KEYS[2] delayed: handles by due time in ms
-- KEYS[3] due: when the buckets of the timed indexes are due
-- Reply: a number, or -1 when there is no such queue
local meta, delayed, due = KEYS[1], KEYS[2], KEYS[3]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/not_due_in
local state = redis.call('HMGET', meta, 'n', 'adopted', 'gone')
if not state[1] then return -1 end
return state[1] + state[2] - state[3] - not_due_in(delayed, 'd', nil)
