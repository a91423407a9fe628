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
-- KEYS[10..] streams: all of the queue's, in order; the legacy stream last if there is one
-- ARGV[1] legacy: '1' when the last declared stream is the legacy one
-- Reply: {now, backlog, in flight, delayed, dead, oldest ms (-1: none), {undelivered of s0, s1, ...}, legacy length,
--         {field, value, ...} of meta, held back} | {now} when there is no such queue
local meta, lens, ready, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local returned, dead, tenants, overflow = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
--- @include lib/places
--- @include lib/server_ms
local now = server_ms()
local state = redis.call('HMGET', meta, 'n', 'adopted', 'gone', 'streams')
if not state[1] then return {now} end
local streams = tonumber(state[4])
local not_due = redis.call('ZCOUNT', delayed, '(' .. now, '(9000000000000000')
local live = redis.call('ZCOUNT', leases, '(' .. now, '(9000000000000000')
local left = math.max(0, state[1] + state[2] - state[3] - not_due)

local per_stream, cursors, oldest = {}, {}, -1
for first = 0, streams - 1, 1000 do
  local fields = {}
  for i = first, math.min(first + 999, streams - 1) do fields[#fields + 1], fields[#fields + 2] = i, 'h' .. i end
  local values = redis.call('HMGET', lens, unpack(fields)) -- at most 2,000: a page
  for at = 1, #fields, 2 do
    per_stream[#per_stream + 1], cursors[fields[at + 1]] = tonumber(values[at] or '0'), values[at + 1]
  end
end
local function older(id)
  local ms = tonumber(string.match(id, '(%d+)%-'))
  if oldest < 0 or ms < oldest then oldest = ms end
end
local any_returned = redis.call('ZCOUNT', returned, 0, '+inf') > 0
for _, turn in ipairs(redis.call('ZRANGEBYSCORE', ready, 0, '+inf')) do
  local first = any_returned and redis.call('ZRANGEBYSCORE', returned, turn * PLACES, turn * PLACES + PLACES - 1, 'LIMIT', 0, 1)[1]
  if first then older(string.match(first, ':(.*)$')) end
  local key = KEYS[10 + turn]
  local cursor = cursors['h' .. turn] or '0-0'
  -- The cursor is below the stream's head: only a stream that could hold something older is looked at.
  local floor = tonumber(string.match(cursor, '(%d+)%-'))
  if key and (oldest < 0 or floor < oldest) then
    local entry = redis.call('XRANGE', key, '(' .. cursor, '+', 'COUNT', 1)[1]
    if entry then older(entry[1]) end
  end
end
for _, index in ipairs({leases, delayed}) do
  local due = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 1)[1]
  if due then older(string.match(due, ':([%d-]+)')) end
end
-- The first in each run is the oldest of its shard key. At most 1,000 runs are looked at.
local from = '('
for _ = 1, 1000 do
  local member = redis.call('ZRANGEBYLEX', overflow, from, '(t', 'LIMIT', 0, 1)[1]
  if not member then break end
  local size, rest = string.match(member, '^(%d+):(.*)$')
  older(string.match(rest, '%d+$') .. '-')
  from = '(' .. size .. ':' .. string.sub(rest, 1, size) .. ';'
end
local held_back = tonumber(string.match(redis.call('HGET', tenants, 'sum') or '0 0', '%d+$'))
local legacy = ARGV[1] == '1' and redis.call('XLEN', KEYS[#KEYS]) or 0
return {now, math.max(0, left - live), live, not_due, redis.call('XLEN', dead), oldest, per_stream, legacy,
  redis.call('HGETALL', meta), held_back}
