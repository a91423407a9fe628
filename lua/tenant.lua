#!lua flags=no-writes
-- tenant: what one shard key (or parent) has in the queue.
-- KEYS[1] meta: number of the present cap
-- KEYS[2] accounts: what it holds, its weight and its limits
-- KEYS[3] overflow: what is held back of it
-- KEYS[4] leases: what is in flight
-- KEYS[5] lens: cursors of its streams
-- KEYS[6] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[7] bodies: bodies of messages that lie apart
-- KEYS[8] attempts: since when those wait that were given back
-- KEYS[9..] streams: some of those that it may use
-- ARGV[1] name: the shard key or parent
-- ARGV[2] numbers: of the declared streams, "3,17"
-- ARGV[3] seen: how many leases of its bucket were seen
-- Reply: {now, account, counted in flight or '', weight, limits, since when its first message has been deliverable (ms, '' if nothing is
--         found), leases of a page, how many were seen then or '' at the end}
--- @use time, waiting, ages, leases, schedule
local LOOKS, PAGE = 8, 1000
local q = {
  meta = KEYS[1], accounts = KEYS[2], overflow = KEYS[3], leases = KEYS[4], lens = KEYS[5], redelivery = KEYS[6], bodies = KEYS[7],
  attempts = KEYS[8], found = {}, now = read_clock(),
}
local name, numbers, seen, oldest, at = ARGV[1], ARGV[2], tonumber(ARGV[3]), nil, 8
local account, flight, weight, limits = unpack( -- at most 4: the fields
  redis.call('HMGET', q.accounts, 't:' .. name, 'f:' .. name, 'w:' .. name, 'l:' .. name))
local cap_number = redis.call('HGET', q.meta, 'cap_no')
local counted = string.match(flight or '', '^' .. cap_number .. ' (%d+)$')

if account and seen == 0 then
  for number in string.gmatch(numbers, '%d+') do
    at, q.number = at + 1, number
    local stream = KEYS[at]
    note_returned(q, stream, 0, LOOKS)
    note_new(q, stream, '', LOOKS)
  end
  for nth = 1, #q.found, 2 do
    if q.found[nth] == name then oldest = math.min(oldest or 9e15, tonumber(q.found[nth + 1])) end
  end
  local shard_key, since = read_run_head(q, '[' .. #name .. ':' .. name .. ':')
  if shard_key == name then oldest = math.min(oldest or 9e15, tonumber(since)) end
end

local start, leased = bucket_of(name) * SPAN, 0
local tokens = counted and {} or redis.call(
  'ZRANGEBYSCORE', q.leases, string.format('%.0f', start), string.format('(%.0f', start + SPAN), 'LIMIT', seen, PAGE)
for _, token in ipairs(tokens) do
  local _, shard_key = split_owner(token)
  if shard_key == name then leased = leased + 1 end
end
return {q.now, account or '', counted or '', weight or '1', limits or '', oldest and string.format('%.0f', oldest) or '', leased,
  #tokens == PAGE and seen + PAGE or ''}
