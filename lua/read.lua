#!lua flags=allow-oom
-- read: take back ended leases, let due messages in, then hand out up to `count` messages, one stream after the other
-- from the shared offset. Never skips a stream: one whose key is not declared ends the round, and the hints name it.
-- KEYS[1] meta: epoch, streams, offset, counters
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] ready: streams with something undelivered
-- KEYS[4] notifications: wakes blocked readers
-- KEYS[5] leases: tokens by deadline in ms
-- KEYS[6] delayed: handles by due time in ms
-- KEYS[7] returned: handles that wait for another delivery, by turn
-- KEYS[8] bodies: bodies of delayed messages
-- KEYS[9] attempts: deliveries so far of what was given back
-- KEYS[10] cancelled: handles cancelled while in flight
-- KEYS[11] dead: dead letters
-- KEYS[12] moved: where redriven messages lie now
-- KEYS[13] accounts: what each shard key holds, where the queue is fair
-- KEYS[14] shard_keys: shard keys of what is delayed
-- KEYS[15] overflow: handles that wait for room in the shared streams
-- KEYS[16] journal: what happened to the messages
-- KEYS[17] due: when the buckets of the timed indexes are due
-- KEYS[18..] streams: the declared ones, the legacy stream among them
-- ARGV[1] count: at most so many messages
-- ARGV[2] holder: nonce that makes the leases of this call its own
-- ARGV[3] visibility: ms that the leases last
-- ARGV[4] clock: what the caller makes of the server's clock (lib/clock); '' = nothing yet, do not reap
-- ARGV[5] max_deliveries: more than that is dead, if the queue does not say how many
-- ARGV[6] max_dead: dead letters at most, if the queue does not say how many
-- ARGV[7] blocks: ms for which the caller will block if there is nothing, 0 = it will not
-- ARGV[8] width: how many hints to return
-- ARGV[9] prefer: stream to try first, '' for none
-- ARGV[10] legacy_group: of the legacy stream, '' for none
-- ARGV[11] client: what the journal calls the caller
-- ARGV[12..] numbers: of the declared streams, 'l' for the legacy stream
-- Reply: {'OK' | 'MISS' | 'VOID' | 'NOQUEUE', now, epoch, ms to the next deadline or due time (-1: none), hints "3,17",
--         {place or "d:streams", {{id, {field, value, ...}}, ...}, place, ...} delivered for the first time,
--         {{"place:id:count" or "place:id:count:streams", error, {field, ...}, deliverable since ('' or ms)}, ...} delivered before}
local meta, lens, ready, notifications, leases, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local returned, later, attempts, cancelled, dead, moved = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local tenants, owners, overflow, journal, due = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local count, holder, visibility = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local blocks, width, prefer, legacy_group = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10]
--- @include lib/server_ms
local now = server_ms()
--- @include lib/notify
--- @include lib/legacy
--- @include lib/never
local state = redis.call('HMGET', meta, 'epoch', 'streams', 'offset', 'waiting', 'jump', 'owed', 'fair', 'journal', 'void')
if not state[1] then return {'NOQUEUE'} end
--- @include lib/void
local streams, offset, owed, fair = tonumber(state[2]), tonumber(state[3]), tonumber(state[6]), state[7] == '1'
waiting_until = tonumber(state[4])
local keys, from = {}, offset
for i = 12, #ARGV do keys[ARGV[i]] = KEYS[i + 6] end
keys[LEGACY] = keys['l']
local legacy_done, missed, jump, kept = legacy_group == '', false, nil, tonumber(state[8] or '0')
--- @include lib/journal
--- @include lib/attributes
--- @include lib/lapsed
--- @include lib/ring
--- @include lib/grant
local ended = any_due(leases) or string.find(ARGV[4], 'j', 1, true)
local came_due, others_due, any_returned = any_due(delayed), fair and any_due(due), redis.call('ZCARD', returned) > 1
local skipped, look_ahead, take_returned, leave_line, hand_out_line, take_legacy, take_preferred, pass, linger, only_ahead, next_round, close, served, just_noted
-- What is seldom needed is made only then: in Lua making a function costs as much as calling it.
if ended or came_due or others_due or any_returned or fair or owed > 0 or prefer ~= '' or not legacy_done then
--- @include lib/seldom
end
--- @include lib/take
local spare, more = {}, nil
repeat
  local turns = turns_to_come(count == 1 and 1 + width or count - found)
  if count > 1 then load_lens(turns) end
  if look_ahead then look_ahead(turns, count - found) end
  local share, over = math.floor((count - found) / math.max(1, #turns)), (count - found) % math.max(1, #turns)
  for i, turn in ipairs(turns) do
    if found == count then
      spare[#spare + 1] = turn
    else
      missed = not keys[turn] or examined - found >= 500
      if missed then break end
      local before = found
      local most = math.max(1, math.min(500, share + (i <= over and 1 or 0), count - found))
      if owed == 0 or not skipped(turn) then take(turn, only_ahead and only_ahead(turn, most) or most) end
      if found == before then examined = examined + 1 end -- a look in vain is work, too
      served, offset = turn, linger and linger(turn) and tonumber(turn) or (turn + 1) % (LEGACY + 1)
    end
  end
  if hand_out_line then hand_out_line() end
  more = #turns > 0
  if fair and not missed then more = next_round(found == 0 and not more) or more end
until missed or found == count or not more
if found == 0 and not missed then clear_notifications() end
if fair then close() end
grant()
--- @include lib/journal_read
if owed ~= tonumber(state[6]) then redis.call('HSET', meta, 'owed', owed) end
if offset ~= from then redis.call('HSET', meta, 'offset', offset) end
local wait = found == 0 and ms_to_next_event() or -1
--- @include lib/hints
return {found == 0 and missed and 'MISS' or 'OK', now, state[1], wait, hints, first_time, again}
