#!lua flags=allow-oom
-- extend: move the deadline of live leases. A token that is not live changes nothing.
-- KEYS[1] meta: the clock's last jump, who waits
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] leases: tokens by deadline in ms
-- KEYS[4] cancelled: handles cancelled while in flight
-- KEYS[5] due: when the buckets of the timed indexes are due
-- ARGV[1] visibility: the leases end so many ms from now
-- ARGV[2..] tokens: of the leases
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled)}
local meta, notifications, leases, cancelled, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local visibility = tonumber(ARGV[1])
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/split_token
--- @include lib/held
--- @include lib/deadlines_of
--- @include lib/heads
waiting_until = tonumber(state[2])

-- In its bucket. Of one that is to end sooner than before nothing may be known there.
local function moved(deadline)
  local ends, at = deadline % SPAN, now + visibility
  local start = deadline - ends
  if start > 0 and at < ends then note_head('l', string.format('%d', start / SPAN), at) end
  return string.format('%.0f', start + at)
end
local tokens, letters, moved_on = {}, {}, {}
for at = 2, #ARGV do tokens[#tokens + 1] = ARGV[at] end
local deadlines = deadlines_of(tokens)
for i, token in ipairs(tokens) do
  local place, id = split_token(token)
  if not is_live(deadlines[i]) then
    letters[i] = 'l'
  elseif any_cancelled and redis.call('SISMEMBER', cancelled, place .. ':' .. id) == 1 then
    letters[i] = 'c'
  else
    letters[i] = 'o'
    moved_on[#moved_on + 1], moved_on[#moved_on + 2] = moved(deadlines[i]), token
  end
end
if #moved_on > 0 then
  if visibility < 5000 and waiting_until > now then redis.call('XLEN', notifications) end -- fails before the first effect
  redis.call('ZCARD', due)
  redis.call('ZADD', leases, 'XX', unpack(moved_on)) -- at most 1,000: a chunk
  save_heads()
  if visibility < 5000 then notify('') end
end
return {now, table.concat(letters)}
