#!lua flags=allow-oom
-- ack: the work is done; forget these messages. A token that is not live changes nothing.
-- KEYS[1] meta: counters
-- KEYS[2] leases: tokens by deadline in ms
-- KEYS[3] attempts: what is known of messages delivered before
-- KEYS[4] cancelled: handles cancelled while in flight
-- KEYS[5] moved: where redriven messages lie now
-- KEYS[6] later: bodies of delayed messages
-- KEYS[7] lens: undelivered per stream
-- KEYS[8] ready: streams with something undelivered
-- KEYS[9] notifications: wakes blocked readers
-- KEYS[10] returned: the line of what waits for its stream's turn
-- KEYS[11] tenants: what each shard key holds
-- KEYS[12] overflow: handles that wait for room
-- KEYS[13] journal: what happened to the messages
-- KEYS[14..] streams: the bodies' streams
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] places: where the bodies lie and how many leases in each: "3*2,17*1,d*1", the streams as declared
-- ARGV[3] count: of leases; no token comes twice
-- ARGV[4] known: how many handles follow of messages that were delivered before, delayed or adopted
-- ARGV[5..] rest: tokens in the order of the places, their entry ids, known handles, original ids of redriven messages;
--            at the end what the journal is told (lib/journal_told)
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled)}
local meta, leases, attempts, cancelled, moved, later = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lens, ready, notifications, returned = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local tenants, overflow, journal = KEYS[11], KEYS[12], KEYS[13]
local repeated, count = ARGV[1] == '1', tonumber(ARGV[3])
local last_known, last, told = 4 + 2 * count + ARGV[4], #ARGV - 1, ARGV[#ARGV]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/held
local kept, live = tonumber(state[6] or '0'), not any_cancelled
--- @include lib/journal_entry
local deadlines = redis.call('ZMSCORE', leases, unpack(ARGV, 5, 4 + count)) -- at most 500: a chunk
if journal_entry and told == '' then live = false end
for i = 1, count do live = live and is_live(deadlines[i]) end
local keys, places, sizes = {d = later}, {}, {}
for place, size in string.gmatch(ARGV[2], '(%w+)%*(%d+)') do
  places[#places + 1], sizes[place] = place, tonumber(size)
  if place ~= 'd' then keys[place] = KEYS[13 + #places - (sizes['d'] and 1 or 0)] end
end
-- Redis does not roll a script back: a key of another type must be found before the first effect.
for _, place in ipairs(places) do redis.call('XLEN', keys[place]) end
if ARGV[4] ~= '0' or not live then redis.call('HLEN', attempts) end
if last > last_known or not live then redis.call('HLEN', moved) end
if state[4] == '1' and (state[5] or '0') ~= '0' then
--- @include lib/land_all
end
if live then
  redis.call('ZREM', leases, unpack(ARGV, 5, 4 + count)) -- at most 500
  if ARGV[4] ~= '0' then redis.call('HDEL', attempts, unpack(ARGV, 5 + 2 * count, last_known)) end -- at most 500
  if last > last_known then redis.call('HDEL', moved, unpack(ARGV, last_known + 1, last)) end -- at most 500
  local at = 5 + count
  for _, place in ipairs(places) do
    redis.call('XDEL', keys[place], unpack(ARGV, at, at + sizes[place] - 1)) -- at most 500
    at = at + sizes[place]
  end
  redis.call('HINCRBY', meta, 'gone', count)
  redis.call('HINCRBY', meta, 'acked', count)
  if journal_entry then journal_entry(count, string.rep('a', count) .. '\n' .. told) end
  return {now, string.rep('o', count)}
end
--- @include lib/journal
--- @include lib/journal_told
--- @include lib/ack_each
if log then log.finish() end
return {now, table.concat(letters)}
