#!lua
-- keep: keep the results of messages that their holders are about to ack. A token that is not live changes nothing.
-- Without messages: only forget results that have ended.
-- KEYS[1] meta: settings and counters
-- KEYS[2] leases: tokens by deadline in ms
-- KEYS[3] cancelled: handles cancelled while in flight
-- KEYS[4] results: what is kept of messages
-- KEYS[5] result_ends: the same by end
-- KEYS[6] finished: ids of messages that have ended, for those who wait
-- ARGV[1..] results: four arguments each: lease token, message id, kind, and "tag|payload"; a kind '' only forgets the progress
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled), f(ull): the payload was not kept, '1' if more has ended}
--- @use time, keys, leases, results, ends
local q = {
  meta = KEYS[1], leases = KEYS[2], cancelled = KEYS[3], results = KEYS[4], result_ends = KEYS[5],
  finished = KEYS[6], now = read_clock(),
}
local jump, ttl = unpack(redis.call('HMGET', q.meta, 'jump', 'result_ttl')) -- at most 2: the fields
q.jump = read_jump(jump, q.now)
check_types({q.results, q.meta}, {q.result_ends}, {q.finished})
begin_results(q)
local more = forget_ended_results(q)

local tokens, letters, ids, refused = {}, {}, {}, 0
for at = 1, #ARGV, 4 do tokens[#tokens + 1] = ARGV[at] end
local scores, any_cancelled = read_scores(q, tokens), redis.call('SCARD', q.cancelled) > 1
local ends = string.format('%.0f', q.now + (ttl or 0))
for i, token in ipairs(tokens) do
  local message_id, kind, payload = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local place, id = split_token(token)
  if not is_live(q, scores[i]) then
    letters[i] = 'l'
  elseif any_cancelled and redis.call('SISMEMBER', q.cancelled, place .. ':' .. id) == 1 then
    letters[i] = 'c'
  else
    -- Where there is no room for the payload, it is still said that the message is done.
    local known, progress = unpack(redis.call('HMGET', q.results, message_id, 'p:' .. message_id)) -- at most 2: the fields
    if progress then forget_result(q, 'p:' .. message_id, progress) end
    letters[i] = 'o'
    if kind ~= '' then
      local head = ends .. string.format('|%.0f|', q.now)
      local is_kept = ttl and keep_result(q, message_id, ends, head .. kind .. '|' .. payload, known)
      if ttl and not is_kept then keep_result(q, message_id, ends, head .. 'full||', known) end
      if not is_kept then letters[i] = 'f' end
      if not is_kept or kind ~= 'v' then refused = refused + 1 end
      ids[#ids + 1] = message_id
    end
  end
end
save_results(q)
if refused > 0 then redis.call('HINCRBY', q.meta, 'results_refused', refused) end
announce_ends(q, ids)
return {q.now, table.concat(letters), more and '1' or ''}
