#!lua flags=allow-oom
-- extend: move the deadline of live leases, or only tell which are live. A token that is not live changes nothing.
-- KEYS[1] meta: the clock's last jump, who waits
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] leases: tokens by deadline in ms
-- KEYS[4] cancelled: handles cancelled while in flight
-- KEYS[5] due: when the buckets of the timed indexes are due
-- ARGV[1] visibility: the leases end so many ms from now; '' = they stay as they are
-- ARGV[2..] tokens: of the leases
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled)}
--- @use time, leases, schedule, notifications
local q = {
  meta = KEYS[1], notifications = KEYS[2], leases = KEYS[3], cancelled = KEYS[4], due = KEYS[5], now = read_clock(),
  due_times = {},
}
local visibility, tokens = tonumber(ARGV[1]), {}
for at = 2, #ARGV do tokens[at - 1] = ARGV[at] end
local jump, waiting = unpack(redis.call('HMGET', q.meta, 'jump', 'waiting')) -- at most 2: the fields
q.jump, q.waiting_until = read_jump(jump, q.now), tonumber(waiting)

local scores, any_cancelled = read_scores(q, tokens), redis.call('SCARD', q.cancelled) > 1
local letters, moved = {}, {}
for i, token in ipairs(tokens) do
  local place, id = split_token(token)
  if not is_live(q, scores[i]) then
    letters[i] = 'l'
  elseif any_cancelled and redis.call('SISMEMBER', q.cancelled, place .. ':' .. id) == 1 then
    letters[i] = 'c'
  else
    letters[i] = 'o'
    if visibility then moved[#moved + 1], moved[#moved + 2] = move_deadline(q, scores[i], q.now + visibility), token end
  end
end

if #moved > 0 then
  -- A lease that ends in less than 5 s may end before a blocked reader looks again, so the reader is woken.
  local is_short = visibility < SOON
  if is_short and q.waiting_until > q.now then redis.call('XLEN', q.notifications) end -- fails before the first effect
  redis.call('ZCARD', q.due)
  redis.call('ZADD', q.leases, 'XX', unpack(moved)) -- at most 1,000: a chunk
  save_due_times(q)
  if is_short then notify_reader(q, '') end
end
return {q.now, table.concat(letters)}
