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
-- KEYS[8] dedup: dedup keys and lanes, each with its end and the ids
-- KEYS[9] dedup_index: the same by end, to forget them in time
-- KEYS[10..] streams: those that the shards of this call may choose from
-- ARGV[1] epoch: the caller's idea of it
-- ARGV[2] lane: producer and lane, '' for none
-- ARGV[3] sequence: of this call in its lane
-- ARGV[4] window: for how long dedup keys are remembered, ms
-- ARGV[5] max_dedup: how many of them at most
-- ARGV[6] keyed: how many messages of this call carry a dedup key
-- ARGV[7] max_len: most messages not yet settled, 0 for no bound
-- ARGV[8] numbers: stream numbers of the declared streams, "3,17"
-- ARGV[9] count: messages in this call
-- ARGV[10..] messages: six each: hand (positions in `numbers`, two bytes each, '' for all), shard key, attributes,
--            headers, payload, options ('' or "delay_ms|ms_to_deadline|dedup key"; the last is the rest)
-- Reply: {'OK', ids "a,b"} | {'EPOCH'} | {'STALE'} | {'FULL', name of the bound}
local meta, lens, ready, notifications = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local delayed, later, attempts, dedup, dedup_index = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local epoch, lane, sequence, window = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local max_dedup, keyed, max_len, count = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9])
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/stream_keys
--- @include lib/remember

local state = redis.call('HMGET', meta, 'epoch', 'n', 'ms', 'waiting', 'gone', 'adopted')
if state[1] ~= epoch then return {'EPOCH'} end
if lane ~= '' then
  local done, ids = lane_result(lane, sequence)
  if done then return done == 'again' and {'OK', ids} or {'STALE'} end
end
if max_len > 0 and state[2] + state[6] - state[5] + count > max_len then return {'FULL', 'max_len'} end
if keyed > 0 then
  forget_old(keyed + 4)
  if redis.call('ZCARD', dedup_index) - 1 + keyed > max_dedup then return {'FULL', 'max_dedup'} end
end

local n, ms = tonumber(state[2]), math.max(now, tonumber(state[3]))
waiting_until = tonumber(state[4])
local keys, order = stream_keys(ARGV[8], KEYS, 10)
local undelivered, before = redis.call('HMGET', lens, unpack(order)), {}
for i = 1, #order do undelivered[i] = tonumber(undelivered[i] or '0') end
--- @include lib/shortest
--- @include lib/check_types

local ids, first, earliest = {}, {}, false
--- @include lib/count_up
for i = 1, count do
  local at = 10 + (i - 1) * 6
  local hand, attributes, options = ARGV[at], ARGV[at + 2], ARGV[at + 5]
  local delay, dedup_key, known = 0, '', nil
  if options ~= '' then
    local after, lasts, key = string.match(options, '^(%d*)|(%d*)|(.*)$')
    delay, dedup_key = tonumber(after) or 0, key
    if lasts ~= '' then attributes = string.format('%s x%.0f', attributes, now + lasts) end
    if delay > 0 then attributes = string.format('%s t%.0f', attributes, now + delay) end
    if dedup_key ~= '' then known = dedup_result(dedup_key) end
  end
  if not known then
    n = n + 1
    local id = string.format('%.0f-%.0f', ms, n)
    if delay > 0 then
      redis.call('XADD', later, id, 'k', ARGV[at + 1], 'm', attributes, 'h', ARGV[at + 3], 'p', ARGV[at + 4])
      redis.call('ZADD', delayed, now + delay, 'd:' .. id)
      redis.call('HSET', attempts, 'd:' .. id, '0|' .. spelled(hand) .. '|')
      earliest = earliest or delay < 5000
      known = id .. '-d'
    else
      local to = shortest(hand)
      redis.call('XADD', keys[order[to]], id, 'k', ARGV[at + 1], 'm', attributes, 'h', ARGV[at + 3], 'p', ARGV[at + 4])
      if not first[to] then first[to], before[to] = n, undelivered[to] end
      undelivered[to] = undelivered[to] + 1
      notify(order[to])
      known = id .. '-' .. order[to]
    end
    if dedup_key ~= '' then remember_key(dedup_key, known) end
  end
  ids[i] = known
end

count_up()
redis.call('HSET', meta, 'n', string.format('%.0f', n), 'ms', string.format('%.0f', ms))
if earliest then notify('') end
local joined = table.concat(ids, ',')
if lane ~= '' then remember_lane(lane, sequence, joined) end
return {'OK', joined}
