#!lua flags=allow-oom
-- nack: give messages back, at once or after a delay; past max_deliveries they go to the dead letters. Uncounted, they are as often
-- delivered as before this delivery: what failed was not their fault.
-- KEYS[1] meta: counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[8] bodies: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dead: dead letters
-- KEYS[12] moved: where redriven messages lie now
-- KEYS[13] accounts: what each shard key holds
-- KEYS[14] shard_keys: shard keys of what is delayed
-- KEYS[15] overflow: handles that wait for room
-- KEYS[16] journal: what happened to the messages
-- KEYS[17] due: when the buckets of the timed indexes are due
-- KEYS[18] finished: ids of messages that have ended, for those who wait
-- KEYS[19..] streams: the bodies' streams
-- ARGV[1] repeated: '1' when an earlier try of this call may have happened
-- ARGV[2] max_deliveries: if the queue does not say how many; '0' sends them to the dead letters now (reject); '-' gives them back
--         uncounted: then each needs an error, by which an ack knows that something is stored of a message
-- ARGV[3] max_dead: dead letters at most, if the queue does not say how many
-- ARGV[4] numbers: stream numbers of the declared streams, "3,17,l"
-- ARGV[5..] leases: three each: token, delay in ms, error or reason; at the end what the journal needs (see `read_details`)
-- Reply: {now, a letter per lease: o(k), l(ost), c(ancelled), d(ead)}
--- @use time, keys, leases, attempts, dead_letters, schedule, notifications, journal
local q = {
  meta = KEYS[1], lens = KEYS[2], ready = KEYS[3], notifications = KEYS[4], leases = KEYS[5], delayed = KEYS[6],
  redelivery = KEYS[7], bodies = KEYS[8], attempts = KEYS[9], cancelled = KEYS[10], dead = KEYS[11], moved = KEYS[12],
  accounts = KEYS[13], shard_keys = KEYS[14], overflow = KEYS[15], journal = KEYS[16], due = KEYS[17], finished = KEYS[18],
  now = read_clock(), due_times = {}, buckets = {}, lengths = {}, stream_lists = {},
}
local repeated, rejected, uncounted, details_text = ARGV[1] == '1', ARGV[2] == '0', ARGV[2] == '-', ARGV[#ARGV]
local tokens, delays, errors = {}, {}, {}
for at = 5, #ARGV - 1, 3 do
  local i = #tokens + 1
  tokens[i], delays[i], errors[i] = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
end

local jump, waiting, streams, fair, journal_size, written, total_in_flight = unpack( -- at most 7: the fields
  redis.call('HMGET', q.meta, 'jump', 'waiting', 'streams', 'fair', 'journal', 'n', 'total_in_flight'))
q.jump, q.waiting_until, q.stream_count = read_jump(jump, q.now), tonumber(waiting), tonumber(streams)
q.is_fair, q.journal_size, q.positions_from = fair == '1', tonumber(journal_size or '0'), tonumber(written)
local any_cancelled = redis.call('SCARD', q.cancelled) > 1

-- Redis does not roll a script back: a key of another type must be found before the first effect.
check_types({q.lens, q.attempts, q.moved, q.accounts, q.shard_keys}, {q.ready, q.delayed, q.redelivery, q.overflow, q.due},
  {q.notifications, q.bodies, q.dead})
local keys, at_key = {d = q.bodies}, 18
for number in string.gmatch(ARGV[4], '[^,]+') do
  at_key = at_key + 1
  keys[number] = KEYS[at_key]
  redis.call('XLEN', KEYS[at_key])
end

if q.is_fair then
  --- @use window
  prepare_admission(q)
  if q.has_mark then
    --- @use limits
    begin_limits(q)
    begin_looks(q)
  end
end
local details
if q.journal_size > 0 then
  begin_events(q)
  details = read_details(details_text)
end

-- The live leases end. A message that was cancelled while it was in flight is gone for good now.
local scores, live, ended = read_scores(q, tokens), {}, {}
for i, token in ipairs(tokens) do
  live[i] = is_live(q, scores[i])
  if live[i] then ended[#ended + 1] = token end
end
if #ended > 0 then
  redis.call('ZREM', q.leases, unpack(ended)) -- at most 250: a chunk
  read_limits(q, ARGV[2], ARGV[3])
end
local items, at_item = end_leases(q, ended, any_cancelled), 0

-- Each message goes to the dead letters, or it will be delivered again, now or after its delay. A repeated call that finds no
-- lease did its work the first time: the message is not the caller's either way.
local letters, kept, back, delayed, dead = {}, {}, {}, {}, {}
for i in ipairs(tokens) do
  local letter, item = repeated and 'o' or 'l', nil
  if live[i] then
    at_item = at_item + 1
    item = items[at_item]
    letter = item and 'o' or 'c'
  end
  if item then
    local delay = delays[i]
    if errors[i] ~= '' then item.last_error = errors[i] end
    if uncounted then item.deliveries = item.deliveries - 1 end
    if rejected or not uncounted and item.deliveries >= q.max_deliveries then
      item.is_rejected = rejected
      letter, dead[#dead + 1] = end_message(q, item, keys[item.place])
    else
      item.since, kept[#kept + 1] = q.now + delay, item
      local list = delay == 0 and back or delayed
      list[#list + 1] = item
      -- A blocked reader looks again by itself, but maybe not as soon as this message is due.
      if delay > 0 and delay < SOON then notify_reader(q, '') end
      if details then
        local message_id, shard_key = details.ids[i] or item.id .. '-' .. item.place, details.shard_keys[i] or ''
        note_event(q, 'n', message_id, shard_key, details.counts[i] or item.deliveries, delay > 0 and item.since)
      end
    end
  end
  letters[i] = letter
end
save_attempts(q, kept)
if #delayed > 0 then delay_returned(q, delayed) end
if (total_in_flight or '0') ~= '0' then
  for _ = 1, #ended do notify_reader(q, '') end -- readers may be blocked by the cap of the whole queue
end

-- What is to be delivered now needs room in the window of its shard key, else it waits in the overflow. The leases that ended
-- may have made room for others.
if q.is_fair then
  --- @use window
  give_back_messages(q, back)
  close_accounts(q)
elseif #back > 0 then
  --- @use redelivery
  arrange_messages(back)
  enqueue_messages(q, back)
end
if details then save_events(q, details.client) end
if #dead > 0 then
  --- @use ends
  announce_ends(q, dead)
end
return {q.now, table.concat(letters)}
