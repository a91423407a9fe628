#!lua
-- progress: note how far the work on a message is. A token that is not live changes nothing.
-- KEYS[1] meta: settings and counters
-- KEYS[2] leases: tokens by deadline in ms
-- KEYS[3] cancelled: handles cancelled while in flight
-- KEYS[4] results: what is kept of messages
-- KEYS[5] result_ends: the same by end
-- ARGV[1] token: of the lease
-- ARGV[2] message_id: as write returned it
-- ARGV[3] ttl: for how long it is kept, ms
-- ARGV[4] progress: "done|total|note"
-- Reply: {now, 'o' | 'l' (lost) | 'c' (cancelled) | 'f' (full: not kept)}
--- @use time, keys, leases, results
local q = {
  meta = KEYS[1], leases = KEYS[2], cancelled = KEYS[3], results = KEYS[4], result_ends = KEYS[5], now = read_clock(),
}
local token, field, ttl, progress = ARGV[1], 'p:' .. ARGV[2], tonumber(ARGV[3]), ARGV[4]
q.jump = read_jump(redis.call('HGET', q.meta, 'jump'), q.now)
if not is_live(q, redis.call('ZSCORE', q.leases, token)) then return {q.now, 'l'} end
local place, id = split_token(token)
if redis.call('SISMEMBER', q.cancelled, place .. ':' .. id) == 1 then return {q.now, 'c'} end

check_types({q.results, q.meta}, {q.result_ends}, {})
begin_results(q)
forget_ended_results(q)
local ends, known = string.format('%.0f', q.now + ttl), redis.call('HGET', q.results, field)
local is_kept = keep_result(q, field, ends, ends .. string.format('|%.0f|', q.now) .. progress, known)
save_results(q)
return {q.now, is_kept and 'o' or 'f'}
