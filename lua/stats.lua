#!lua flags=no-writes
-- stats: the queue's numbers at one instant. Cost depends on the number of streams, not of messages.
-- A message cancelled while in flight stays in flight until its holder lets go; an ended lease is backlog, reaped or not.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] leases: tokens by deadline in ms
-- KEYS[5] delayed: handles by due time in ms
-- KEYS[6] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[7] dead: dead letters
-- KEYS[8] accounts: how many are held back, and for limits
-- KEYS[9] overflow: handles that wait for room
-- KEYS[10] attempts: since when those wait that were delayed or given back
-- KEYS[11] due: when the buckets of the timed indexes are due
-- KEYS[12..] streams: all of the queue's, in order; the legacy stream last if there is one
-- ARGV[1] legacy: '1' when the last declared stream is the legacy one
-- ARGV[2] most: of how many streams at most to return the undelivered messages; where there are more, of none
-- Reply: {now, backlog, in flight, delayed, dead, oldest ms (-1: none), {undelivered of s0, s1, ...}, legacy length,
--         {field, value, ...} of meta, held back, held back for limits} | {now} when there is no such queue
--- @use time, schedule, ages, streams, accounts
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], leases = KEYS[4], delayed = KEYS[5], redelivery = KEYS[6], dead = KEYS[7],
  accounts = KEYS[8], overflow = KEYS[9], attempts = KEYS[10], due = KEYS[11], streams = {}, now = read_clock(), oldest = -1,
}
for at = 12, #KEYS do q.streams[at - 12] = KEYS[at] end
local has_legacy, most = ARGV[1] == '1', tonumber(ARGV[2])
local written, adopted, gone, streams, jump, parents =
  unpack(redis.call('HMGET', q.meta, 'n', 'adopted', 'gone', 'streams', 'jump', 'parents')) -- at most 6: the fields
if not written then return {q.now} end
q.parents = parents

jump = read_jump(jump, q.now)
local delayed, live = count_not_due(q, q.delayed, 'd', nil), count_not_due(q, q.leases, 'l', jump)
local left = math.max(0, written + adopted - gone - delayed)

load_sum(q, redis.call('HGET', q.accounts, 'sum'))
local jumped_by = jump and jump.by or 0
note_stream_age(q, redis.call('ZRANGEBYSCORE', q.ready, 0, '+inf'))
note_returned_age(q)
note_overflow_age(q)
note_index_age(q, q.delayed, 'd', q.now, 0)
note_index_age(q, q.leases, 'l', q.now - jumped_by, jumped_by)

local lengths = tonumber(streams) > most and {} or read_lengths(q, 0, tonumber(streams))
local legacy = has_legacy and redis.call('XLEN', KEYS[#KEYS]) or 0
return {q.now, math.max(0, left - live), live, delayed, redis.call('XLEN', q.dead), q.oldest, lengths, legacy,
  redis.call('HGETALL', q.meta), q.held, q.withheld}
