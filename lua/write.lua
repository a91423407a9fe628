#!lua
-- write: store messages, all or none, each in the shortest stream of its shard, or in the store of delayed ones.
-- A repeated call of one lane (same sequence) changes nothing and returns the same ids.
-- KEYS[1] meta: epoch, counters, the id clock
-- KEYS[2] lens: per stream: undelivered messages, and the cursor below the oldest of them
-- KEYS[3] ready: streams that have something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] delayed: not due yet, by due time in ms
-- KEYS[6] later: bodies of delayed messages
-- KEYS[7] attempts: what is known of delayed messages
-- KEYS[8] dedup: dedup keys, lanes and tallies, each with its end and the ids
-- KEYS[9] dedup_index: dedup keys by end
-- KEYS[10] tenants: what each shard key holds
-- KEYS[11] owners: shard keys of what is delayed
-- KEYS[12] overflow: handles that wait for room
-- KEYS[13] journal: what happened to the messages
-- KEYS[14] lanes: lanes by end
-- KEYS[15] tallies: lanes that count messages, by end
-- KEYS[16] due: when the buckets of the timed indexes are due
-- KEYS[17..] streams: those that the shards of this call may choose from
-- ARGV[1] epoch: the caller's idea of it
-- ARGV[2] lane: producer and lane, '' for none: then nobody will repeat this call
-- ARGV[3] sequence: "number of this call in its lane|ms for which to remember it"; of one that counts what lib/tally says
-- ARGV[4] window: for how long dedup keys are remembered, ms
-- ARGV[5] max_dedup: how many of them at most
-- ARGV[6] keyed: how many messages of this call carry a dedup key
-- ARGV[7] max_len: most messages not yet settled, 0 for no bound
-- ARGV[8] count: messages in this call
-- ARGV[9] declared: how many streams
-- ARGV[10] stride: arguments per message: 4, or 6 when one of them has headers or options
-- ARGV[11..] rest: the numbers of the declared streams, then of each message: hand (see lib/shortest), shard key, tag,
--            payload, and with a stride of 6 headers and options ('' or "delay_ms|ms_to_deadline|dedup key")
-- Reply: {'OK', "ms|n|a,b"} | {'EPOCH'} | {'STALE'} | {'FULL', name of the bound, messages "1,5"} | {'COUNTED', batch, stored, mark}
--        Of each message its place if it is new, else its id: new ids are ms-(n+1)-place, ms-(n+2)-place, ...
local meta, lens, ready, notifications = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local delayed, later, attempts, dedup, dedup_index = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local tenants, owners, overflow, journal = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local lanes, tallies, due = KEYS[14], KEYS[15], KEYS[16]
local epoch, lane, sequence, window = ARGV[1], ARGV[2], nil, tonumber(ARGV[4])
local max_dedup, keyed, max_len = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local count, declared, stride = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/remember
local state = redis.call('HMGET', meta, 'epoch', 'n', 'ms', 'waiting', 'gone', 'adopted', 'fair', 'journal')
if state[1] ~= epoch then return {'EPOCH'} end
--- @include lib/lane
--- @include lib/bounds
local n, ms = tonumber(state[2]), math.max(now, tonumber(state[3]))
waiting_until = tonumber(state[4])
local waiting, order = waiting_until > now, {}
for i = 1, declared do order[i] = ARGV[10 + i] end
local undelivered = redis.call('HMGET', lens, unpack(order)) -- at most 4,096: all streams
for i = 1, declared do undelivered[i] = tonumber(undelivered[i] or '0') end
-- A number as text keeps 14 digits: far more messages than a queue will ever have, and an order faster than formats.
local before, prefix, places, first, changed, earliest = n, string.format('%.0f-', ms), {}, {}, {}, false
local fair, mark, hold, save = state[7] == '1', 'k', nil, nil
--- @include lib/shortest
--- @include lib/put
--- @include lib/options
if fair then
--- @include lib/fair_write
  if #full > 0 then return {'FULL', 'max_backlog', table.concat(full, ',')} end
end
--- @include lib/check_types
for i = 1, count do
  local at = 11 + declared + (i - 1) * stride
  local delay, attributes, dedup_key, place = 0, '', '', nil
  local headers = stride == 6 and ARGV[at + 4] or ''
  if stride == 6 and ARGV[at + 5] ~= '' then
    delay, attributes, dedup_key = options_of(ARGV[at + 5])
    place = dedup_key ~= '' and dedup_result(dedup_key) or nil
  end
  if not place then
    n = n + 1
    local id = prefix .. n
    if delay > 0 then
      place = put_later(id, at, attributes, headers, delay)
    elseif hold and hold(id, at, attributes, headers) then
      place = 'd'
    else
      local to = shortest(ARGV[at])
      put(KEYS[16 + to], id, at, attributes, headers)
      if undelivered[to] == 0 then first[to] = n end
      undelivered[to], changed[to] = undelivered[to] + 1, true
      place = order[to]
      if waiting then notify(place) end
    end
    if dedup_key ~= '' then remember_key(dedup_key, id .. '-' .. place) end
  end
  places[i] = place
end
--- @include lib/count_up
if save then save() end
--- @include lib/journal_write
if earliest then notify('') end
local stored = string.format('%.0f|%.0f|%s', ms, before, table.concat(places, ','))
if lane ~= '' then remember_lane(lane, sequence, tally or stored) end
return {'OK', stored}
