#!lua flags=no-writes
-- len: messages that still ask for work now: backlog + in flight. What is delayed counts once it is due.
-- KEYS[1] meta: counters
-- KEYS[2] delayed: handles by due time in ms
-- KEYS[3] due: when the buckets of the timed indexes are due
-- Reply: a number, or -1 when there is no such queue
--- @use time, schedule
local q = {meta = KEYS[1], delayed = KEYS[2], due = KEYS[3], now = read_clock()}
local written, adopted, gone = unpack(redis.call('HMGET', q.meta, 'n', 'adopted', 'gone')) -- at most 3: the fields
if not written then return -1 end
return written + adopted - gone - count_not_due(q, q.delayed, 'd', nil)
