#!lua flags=no-writes
-- stats: the queue's numbers at one instant. Cost depends on the number of streams, not of messages.
-- A message cancelled while in flight stays in flight until its holder lets go; an ended lease is backlog, reaped or not.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] leases: tokens by deadline in ms
-- KEYS[5] delayed: handles by due time in ms
-- KEYS[6] returned: handles that wait for another delivery, by turn
-- KEYS[7] dead: dead letters
-- KEYS[8] tenants: how many are held back
-- KEYS[9] overflow: handles that wait for room
-- KEYS[10] attempts: since when those wait that were delayed or given back
-- KEYS[11] due: when the buckets of the timed indexes are due
-- KEYS[12..] streams: all of the queue's, in order; the legacy stream last if there is one
-- ARGV[1] legacy: '1' when the last declared stream is the legacy one
-- ARGV[2] most: of how many streams at most to tell their undelivered messages; where there are more, of none
-- Reply: {now, backlog, in flight, delayed, dead, oldest ms (-1: none), {undelivered of s0, s1, ...}, legacy length,
--         {field, value, ...} of meta, held back} | {now} when there is no such queue
local meta, lens, ready, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local returned, dead, tenants, overflow, attempts, due = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local STREAMS = 12 -- the first one's place among KEYS
--- @include lib/places
--- @include lib/server_ms
--- @include lib/jump
local now = server_ms()
--- @include lib/not_due_in
--- @include lib/oldest
--- @include lib/lengths
local state = redis.call('HMGET', meta, 'n', 'adopted', 'gone', 'streams', 'jump')
if not state[1] then return {now} end
local jump = (state[5] or '') ~= '' and jump_of(state[5], now)
local not_due, live = not_due_in(delayed, 'd', nil), not_due_in(leases, 'l', jump)
local left = math.max(0, state[1] + state[2] - state[3] - not_due)

look_at_streams(redis.call('ZRANGEBYSCORE', ready, 0, '+inf'))
look_at_lines()
look_at_overflow()
look_at_index(delayed, 'd', now, 0)
look_at_index(leases, 'l', now - (jump and jump.by or 0), jump and jump.by or 0)
local held_back = tonumber(string.match(redis.call('HGET', tenants, 'sum') or '0 0', '%d+$'))
local legacy = ARGV[1] == '1' and redis.call('XLEN', KEYS[#KEYS]) or 0
return {now, math.max(0, left - live), live, not_due, redis.call('XLEN', dead), oldest,
  lengths_of_streams(0, tonumber(state[4]) > tonumber(ARGV[2]) and 0 or tonumber(state[4])), legacy, redis.call('HGETALL', meta), held_back}
