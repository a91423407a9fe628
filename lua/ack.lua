#!lua flags=allow-oom
-- ack: the work is done; forget these messages. A token that is not live changes nothing.
-- KEYS[1] meta: counters
-- KEYS[2] leases: tokens by deadline in ms
-- KEYS[3] attempts: what is known of messages delivered before
-- KEYS[4] cancelled: handles cancelled while in flight
-- KEYS[5] moved: where redriven messages lie now
-- KEYS[6] later: bodies of delayed messages
-- KEYS[7..] streams: the bodies' streams
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] numbers: stream numbers of the declared streams, "3,17,l"
-- ARGV[3..] leases: two each: token, original message id if the message was redriven, else ''
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled)}
local meta, leases, attempts, cancelled, moved, later = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local repeated = ARGV[1] == '1'
--- @include lib/server_ms
local now = server_ms()
--- @include lib/stream_keys
--- @include lib/split_token
--- @include lib/held
local keys = stream_keys(ARGV[2], KEYS, 7)
keys['d'] = later

local tokens = {}
for at = 3, #ARGV, 2 do tokens[#tokens + 1] = ARGV[at] end
local deadlines, letters, ended, bodies, known = deadlines_of(tokens), {}, {}, {}, {}
local revoked, origins, gone, acked = {}, {}, 0, 0
for i, token in ipairs(tokens) do
  local place, id, deliveries = split_token(token)
  local handle, origin = place .. ':' .. id, ARGV[2 + 2 * i]
  if not is_live(deadlines[i]) then
    -- A repeated ack whose message is gone was done by the first try (or by its next holder: done is done).
    letters[i] = repeated and #redis.call('XRANGE', keys[place], id, id) == 0 and 'o' or 'l'
  elseif any_cancelled and redis.call('SISMEMBER', cancelled, handle) == 1 then
    letters[i], ended[#ended + 1], known[#known + 1], gone = 'c', token, handle, gone + 1
    revoked[#revoked + 1] = handle
  else
    letters[i], ended[#ended + 1], gone, acked = 'o', token, gone + 1, acked + 1
    bodies[place] = bodies[place] or {}
    table.insert(bodies[place], id)
    if deliveries > 1 or place == 'd' then known[#known + 1] = handle end
    if origin ~= '' then origins[#origins + 1] = origin end
  end
end
-- Redis does not roll a script back: a key of another type must be found before the first effect.
for place in pairs(bodies) do redis.call('XLEN', keys[place]) end
if #known > 0 then redis.call('HLEN', attempts) end
if #origins > 0 then redis.call('HDEL', moved, unpack(origins)) end
if #revoked > 0 then redis.call('SREM', cancelled, unpack(revoked)) end
if #ended > 0 then redis.call('ZREM', leases, unpack(ended)) end
if #known > 0 then redis.call('HDEL', attempts, unpack(known)) end
for place, ids in pairs(bodies) do redis.call('XDEL', keys[place], unpack(ids)) end
if gone > 0 then
  redis.call('HINCRBY', meta, 'gone', gone)
  redis.call('HINCRBY', meta, 'acked', acked)
end
return {now, table.concat(letters)}
