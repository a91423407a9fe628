-- Verbs that take messages away, many at once: purge (of the whole queue), purge_of (of one tenant).

local function purge_body(q, place, id, key)
  Leases.note_end(q, 'g', place, id, key, 0)
  Messages.drop_body(q, place, id)
  add(q, 'without_error', id)
  q.purged = q.purged + 1
end

-- Takes away the record of a stream: `left` are not over.
local function note_purged(q, number, key, left, rest, entries)
  local lost = left - rest - #entries
  q.shared = q.shared - (left - rest)
  if lost > 0 then
    State.count_up(q, 'vanished', lost)
    q.walk = Due.walk_for_vanished(q.walk or q.odd.walk or '')
    State.put_odd(q, 'walk', q.walk)
  end
  State.put(q, key, rest)
  if #entries > 0 then State.put(q, 'h' .. number, entries[#entries][1]) end
  if rest == 0 then Streams.mark(q, number, 48) end -- '0'
end

-- Removes the undelivered entries of one stream.
local function purge_stream(q, number)
  local key = Messages.stream_key(q, number)
  local left, cursor = unpack(call('HMGET', q.keys[META], key, 'h' .. number)) -- at most 2: the fields
  left = tonumber(left or 0)
  local asked = q.most - q.purged
  local entries = call('XRANGE', key, '(' .. (cursor or '0-0'), '+', 'COUNT', asked + 1)
  if #entries > left then
    Streams.count_foreign(q, #entries - left)
    left = #entries
  end
  local has_more = #entries > asked
  if has_more then entries[#entries] = nil end
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    local is_ours = Messages.is_ours(fields)
    if is_ours and fields[1] == 'K' then
      local a = Accounts.find_account(q, Rules.owner_of(q.rules, fields[2]))
      a.taken = max(0, a.taken - 1)
    end
    purge_body(q, spell(number), entry[1], is_ours and fields[2] or '')
  end
  note_purged(q, number, key, left, has_more and left - #entries or 0, entries)
end

-- Removes a piece of an index whose members begin with "size:name:". `each` counts what goes.
local function purge_index(q, index, list, each)
  -- (The sentinel comes before the digits, the order of children behind them.)
  local members = call('ZRANGEBYLEX', index, '[0', '(:', 'LIMIT', 0, q.most - q.purged)
  for _, member in ipairs(members) do
    local size, from = match(member, '^(%d+):()')
    local name = sub(member, from, from + size - 1)
    if each(q, name, member, from + size + 1) then add(q, list, member) end
  end
end

local function purge_delayed(q, name, member, rest)
  local place, id, attempts = match(member, '^%d+:(%w+):([%d-]+):(%w+):', rest)
  if place ~= 'd' and not Messages.stream_key(q, place) then return false end
  local a = Accounts.find_account(q, name)
  a.delayed = a.delayed - 1
  Due.count_retrying(q, attempts, -1)
  purge_body(q, place, id, name)
  return true
end

local function purge_returned(q, key, member, rest)
  local place, id = match(member, '^%a%d+:(%w+):([%d-]+):', rest)
  if place ~= 'd' and not Messages.stream_key(q, place) then return false end
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, key))
  local holder = q.rules.parents and Children.child_of(q, key) or a
  holder.returned, holder.behind, q.behind = holder.returned - 1, holder.behind - 1, q.behind - 1
  if holder ~= a then a.behind = a.behind - 1 end
  purge_body(q, place, id, key)
  return true
end

local function purge_record(q, holder, id, mark)
  if mark == Messages.REFERENCE then return purge_body(q, 'd', id, holder.name) end
  if mark == Messages.APART then Messages.drop_body(q, 'd', id) end
  Journal.note_event(q, 'g', Messages.message_id(id, 'o', holder.name), holder.name, 0)
  q.purged = q.purged + 1
end

-- Removes what waits in the overflow of one shard key.
local function purge_overflow_of(q, a, holder)
  local base = Waiting.overflow_base(holder.name)
  while q.purged < q.most and holder.behind > holder.returned do
    local got = Overflow.pop_records(q, holder, base, q.most - q.purged, purge_record)
    if got == 0 and holder.overflow.size > 0 then return end -- the next call continues
    if got == 0 then
      got = holder.behind - holder.returned
      State.count_up(q, 'vanished', got)
    end
    holder.behind, q.behind = holder.behind - got, q.behind - got
    if holder ~= a then a.behind = a.behind - got end
  end
end

local SCANS = 4 -- of 100 fields each, in one call

-- Removes messages that wait in overflows, for a piece of the shard keys. Returns where the next call continues, '0' at
-- the end: at the piece in which something may be left.
local function purge_overflows(q)
  local cursor = call('HGET', q.keys[META], 'purge') or '0'
  for _ = 1, SCANS do
    local piece = call('HSCAN', q.keys[META], cursor, 'COUNT', 100)
    for at = 1, #piece[2], 2 do
      local kind, name = match(piece[2][at], '^([tc]):(.*)$')
      if kind == 't' and not q.rules.parents and not tonumber(piece[2][at + 1]) then
        local a = Accounts.find_account(q, name)
        purge_overflow_of(q, a, a)
      elseif kind == 'c' and q.rules.parents then
        purge_overflow_of(q, Accounts.find_account(q, Rules.owner_of(q.rules, name)), Children.child_of(q, name))
      end
    end
    -- Not on from here: something of this piece may be left, so the next call looks at it again.
    if q.purged >= q.most then break end
    cursor = piece[1]
    if cursor == '0' then break end
  end
  if cursor ~= '0' then State.put(q, 'purge', cursor) else State.unset(q, 'purge') end
  return cursor
end

-- Looks at a piece of the accounts, where entries of theirs vanished and the streams are empty. Says whether there are
-- more.
local function walk_vanished(q)
  q.walk, q.piece = q.walk or q.odd.walk or '', PIECE
  if byte(q.walk) ~= 118 or not Due.is_walking(q) then return false end -- 118 is 'v'
  Due.walk_accounts(q)
  return q.walk ~= ''
end

-- Messages whose leases are over wait, too: a piece of them comes back first.
local function take_back_ended(q)
  if not Ended.may_be_some(q) then return end
  q.piece = PIECE
  Leases.take_ended(q, Ended.till(q))
  Leases.flush_taken(q)
  State.put(q, 'lease_at', spell(q.lease_at))
end

-- @verb purge | allow-oom: remove up to `most` undelivered and delayed messages; what is in flight stays. The call that
-- finds nothing left moves the epoch, so that no copy of a call that comes late removes what was written since.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: the declared ones
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] following: the epoch after it
-- ARGV[3] most: in this call
-- ARGV[4] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[5] number: of this call (`read_number`): it is done once, however often it is tried
-- Reply: {'OK', "how many were removed|1 when there may be more"} | {'NOQUEUE' | 'EPOCH', '0|0'} | {'STALE'}
--        | {'FULL', 'max_producers'}
function verbs.purge(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'epoch', 'following', 'count', 'who', 'call_number'})
  local answer = Queue.check_epoch(KEYS[META], ARGV[1], ARGV[2])
  if answer == 'NOQUEUE' then return {answer, '0|0'} end
  local producer, sequence, keep = Producers.read_number(ARGV[5])
  local q = Settle.open_change(KEYS, 18, producer or '')
  Types.look_at_all(q)
  -- Whatever the epoch is by now: if it was done, it says so.
  local done = producer and Producers.check_call(q, sequence, keep, q.values[State.COMMON + 1])
  if done then return done end
  if answer then return {answer, '0|0'} end
  take_back_ended(q)
  q.most, q.purged = ARGV[3] + 0, 0
  local ready = call('HGET', KEYS[META], 'ready')
  q.ready = ready
  for number = 0, #ready - 1 do
    if byte(ready, number + 1) == 49 and q.purged < q.most and Messages.stream_key(q, number) then
      purge_stream(q, number)
    end
  end
  if q.marks then State.put(q, 'ready', Streams.ready(q)) end
  if q.purged < q.most then purge_index(q, KEYS[DELAYED], 'not_later', purge_delayed) end
  if q.purged < q.most then purge_index(q, KEYS[RETURNED], 'not_back', purge_returned) end
  local cursor = q.purged < q.most and q.behind > 0 and purge_overflows(q) or '0'
  -- Only a call that found nothing ends the purge: messages that came meanwhile may lie behind the look of another.
  local more = q.purged > 0 or cursor ~= '0' or q.is_catching_up or walk_vanished(q)
  if not more then Rules.set_epoch(KEYS[META], ARGV[2]) end
  State.count_up(q, 'purged', q.purged)
  local told = q.purged .. (more and '|1' or '|0')
  Producers.end_call(q, producer, told)
  Settle.close_change(q, ARGV[4])
  return {'OK', told}
end

-- The subject of a call of `purge_of`, `target`: the shard key `name` (and with parents the children of that name), its
-- account `a`; only messages up to the number `last`; `room` is what this call may still do, and `looks` what it may
-- look at; `places` are streams that it lacks; what it removed was `waiting`, `delayed`, `dead`, and `cancelled`.
local PARTS_OF_ONE = ' waiting delayed stream dead keys flight cancel '
local LOOKS = 1000 -- messages, letters or keys that one call looks at
local BLOCKS_AHEAD = 64 -- of an overflow, in one look
local CHILDREN_SEEN = 100 -- of a parent, in one call
local LETTERS_SEEN = 250 -- in one call
local KEYS_SEEN = 1000 -- fields of `dedup`, in one call

local function is_of(q, target, key)
  return key == target.name or q.rules.parents and Rules.parent_of(key) == target.name
end

local function is_meant(target, id) return match(id, '%d+$') + 0 <= target.last end

-- Says whether a body can be removed that lies there. If its stream is not declared, the reply says so.
local function is_at_hand(q, target, place)
  if place == 'd' or Messages.stream_key(q, place) then return true end
  if not target.places[place] then
    target.places[place] = true
    target.places[#target.places + 1] = place
  end
  return false
end

-- Removes the body of a message that is in no list any more, and frees its unique key. `flags` say whether it has one.
local function drop_message(q, place, id, key, flags)
  local body = place == 'd' and find(flags, 'u', 1, true) and call('HGET', q.keys[BODIES], id)
  if body then Unique.release_key(q, body, id) end
  purge_body(q, place, id, key)
end

-- Counts messages of a holder that wait no more.
local function leave_waiting(q, target, holder, number)
  local a = target.a
  holder.behind, q.behind = holder.behind - number, q.behind - number
  if holder ~= a then a.behind = a.behind - number end
end

-- Removes what waits in the overflow of one shard key. Says whether nothing is left that is meant.
local function empty_overflow(q, target, holder)
  local base = Waiting.overflow_base(holder.name)
  local each = function(id, mark)
    q.purged = q.purged - 1 -- counted below, too
    if mark == Messages.REFERENCE then return drop_message(q, 'd', id, holder.name, 'u') end
    purge_record(q, holder, id, mark)
  end
  local ahead = 0
  while target.room > 0 and holder.behind > holder.returned do
    ahead = ahead - 1
    if ahead < 0 then
      ahead = min(BLOCKS_AHEAD, target.room)
      Overflow.read_ahead(q, holder, base, ahead)
    end
    local got, is_later = Overflow.drop_records(q, holder, base, target.room, target.last, each, q.events)
    q.purged = q.purged + got
    leave_waiting(q, target, holder, got)
    target.room, target.waiting = target.room - got, target.waiting + got
    if is_later then return true end
    if got == 0 and holder.overflow.size > 0 then return false end -- gaps: the next call continues
    if got == 0 then
      got = holder.behind - holder.returned
      State.count_up(q, 'vanished', got)
      leave_waiting(q, target, holder, got)
    end
  end
  return holder.behind <= holder.returned
end

-- Removes what was given back or came due of one shard key, behind a member. Returns the last member that was looked
-- at, nil if that is all.
local function empty_returned(q, target, holder, after)
  local prefix = Waiting.prefix_of(holder.name)
  local most = min(target.looks, 4 * target.room)
  local from = after ~= '' and '(' .. after or '[' .. prefix
  local members = call('ZRANGEBYLEX', q.keys[RETURNED], from, '(' .. prefix .. '\255', 'LIMIT', 0, most)
  local last
  for _, member in ipairs(members) do
    if target.room <= 0 then return last end
    last = member
    local place, id, attempts = match(member, '^%a%d+:(%w+):([%d-]+):(%w+):', #prefix + 1)
    -- (Without a place another program wrote it.)
    if place and is_meant(target, id) and is_at_hand(q, target, place) then
      add(q, 'not_back', member)
      holder.returned = holder.returned - 1
      leave_waiting(q, target, holder, 1)
      drop_message(q, place, id, holder.name, attempts)
      target.room, target.waiting = target.room - 4, target.waiting + 1
    end
  end
  target.looks = target.looks - #members
  return #members == most and last or nil
end

-- Removes what waits of one shard key outside of the streams. Returns nil if nothing is left that is meant, else the
-- member of `returned` to continue behind ('' for none).
local function empty_holder(q, target, holder, after)
  if after == '' and not empty_overflow(q, target, holder) then return '' end
  if holder.returned == 0 then return nil end
  return empty_returned(q, target, holder, after)
end

-- Returns the holders of what waits, from a child on ('' for the first), and whether there may be more.
local function holders_of(q, target, child)
  local a = target.a
  if not q.rules.parents then return {a}, false end
  if target.name ~= a.name then return {Children.child_of(q, target.name)}, false end
  local found, looked = Children.listed(q, a, child, CHILDREN_SEEN)
  if child ~= '' and looked == 0 then found, looked = Children.listed(q, a, '', CHILDREN_SEEN) end
  return found, looked == CHILDREN_SEEN
end

-- Removes what waits outside of the streams. Returns where to continue: "size:child" and a member of `returned`.
local function empty_waiting(q, target, position)
  take_back_ended(q)
  if q.children then Children.flush(q) end -- those that came to wait by that are listed
  local child, after = '', ''
  if position ~= '' then
    local size, from = match(position, '^(%d+):()')
    if not size then Arguments.refuse('argument 7 is no position') end
    child, after = sub(position, from, from + size - 1), sub(position, from + size)
  end
  local holders, has_more = holders_of(q, target, child)
  for _, holder in ipairs(holders) do
    local left = empty_holder(q, target, holder, holder.name == child and after or '')
    target.room, target.looks = target.room - 4, target.looks - 4
    if left or target.room <= 0 or target.looks <= 0 then
      return #holder.name .. ':' .. holder.name .. (left or '')
    end
  end
  local holder = has_more and holders[#holders]
  if holder then return #holder.name .. ':' .. holder.name end
  return q.is_catching_up and '0:' or ''
end

-- Removes a piece of what is delayed. Returns the member to continue behind, '' at the end.
local function empty_delayed(q, target, after)
  local a = target.a
  local prefix = Waiting.prefix_of(a.name)
  local from = after ~= '' and '(' .. after or '[' .. prefix
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], from, '(' .. prefix .. '\255', 'LIMIT', 0, LOOKS)
  local last = after
  for _, member in ipairs(members) do
    if target.room <= 0 then return last end
    last = member
    local place, id, attempts, key = match(member, '^%d+:(%w+):([%d-]+):(%w+):(.*)$', #prefix + 1)
    if key == '' then key = a.name end
    if place and is_of(q, target, key) and is_meant(target, id) and is_at_hand(q, target, place) then
      add(q, 'not_later', member)
      a.delayed = a.delayed - 1
      Due.count_retrying(q, attempts, -1)
      drop_message(q, place, id, key, attempts)
      target.room, target.delayed = target.room - 3, target.delayed + 1
    end
  end
  if #members == LOOKS then return last end
  if a.delayed <= 0 and a.look_at > 0 and not a.ruled then -- no moment of it comes any more
    call('ZREM', q.keys[DUE], a.name)
    a.delayed, a.look_at = 0, 0
  end
  return ''
end

-- Returns the later one of two ids of entries.
local function later_id(one, other)
  local ms, number = match(one, '^(%d+)%-(%d+)$')
  local other_ms, other_number = match(other, '^(%d+)%-(%d+)$')
  local by = ms ~= other_ms and ms - other_ms or number - other_number
  return by > 0 and one or other
end

-- Takes what was removed out of the counts of a stream.
local function leave_stream(q, number, taken)
  local key = Messages.stream_key(q, number)
  local left = max(0, (call('HGET', q.keys[META], key) or 0) - taken)
  State.put(q, key, spell(left))
  q.shared = q.shared - taken
  if left > 0 or taken == 0 then return end
  q.ready = q.ready or call('HGET', q.keys[META], 'ready')
  Streams.mark(q, number, 48) -- '0'
  State.put(q, 'ready', Streams.ready(q))
end

-- Removes a piece of what a stream has undelivered. Returns the entry to continue behind, '' at the end.
local function empty_stream(q, target, after)
  local a = target.a
  local key = q.declared[q.fixed + 1]
  Messages.stream_key(q, '0') -- it notes the prefix
  local number = key and Arguments.number_of_stream(q.prefix, key)
  if not number then return '' end
  local cursor = call('HGET', q.keys[META], 'h' .. spell(number)) or '0-0'
  local from = after ~= '' and later_id(after, cursor) or cursor
  local entries = call('XRANGE', key, '(' .. from, '+', 'COUNT', LOOKS / 2)
  local taken, last = 0, ''
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], entry[2]
    if target.room <= 0 then break end
    last = id
    if Messages.is_ours(fields) then
      if not is_meant(target, id) then
        last = ''
        break
      end
      if is_of(q, target, fields[2]) then
        if fields[1] == 'K' then a.taken = max(0, a.taken - 1) end
        purge_body(q, spell(number), id, fields[2])
        taken, target.room = taken + 1, target.room - 2
      end
    end
  end
  if taken > 0 then leave_stream(q, number, taken) end
  target.waiting = target.waiting + taken
  if target.room > 0 and #entries < LOOKS / 2 then return '' end
  return last
end

-- Returns in whose shares of dead letters those of a shard key may be: its own, and that of its parent.
local function sharers_of(target)
  local parent = Rules.parent_of(target.name)
  return parent ~= target.name and {target.name, parent} or {target.name}
end

-- Deletes the dead letter with this message's id, if it is meant. Returns whether it did.
local function empty_letter(q, target, message_id)
  local entry_id = message_id and DeadLetters.entry_of(q.keys[MOVED], message_id)
  local entry = entry_id and call('XRANGE', q.keys[DEAD], entry_id, entry_id)[1]
  local key = entry and entry[2][10]
  local number = match(message_id or '', '^%d+%-(%d+)')
  if not key or not is_of(q, target, key) or not number or number + 0 > target.last then return false end
  return DeadLetters.delete_letter(q, entry_id)
end

-- Deletes a piece of its dead letters. Returns where to continue: which share, and which number in it.
local function empty_letters(q, target, position)
  local which, first = match(position, '^(%d+):(%d+)$')
  which, first = (which or 1) + 0, (first or 0) + 0
  local sharers = sharers_of(target)
  local name = sharers[which]
  if not name then return '' end
  local _, from, upto = match(Shares.text_of(q, 'X:', name) or '0 1 0', '^(%d+) (%d+) (%d+)$')
  from, upto = max(from + 0, first), upto + 0
  local fields = {}
  for number = from, min(upto, from + LETTERS_SEEN - 1) do
    fields[#fields + 1] = DeadLetters.number_field(number, name)
  end
  if #fields > 0 then
    for _, message_id in ipairs(call('HMGET', q.keys[MOVED], unpack(fields))) do -- at most 250: those seen
      if empty_letter(q, target, message_id) then target.dead = target.dead + 1 end
    end
  end
  if from + #fields <= upto then return which .. ':' .. spell(from + #fields) end
  return which < #sharers and which + 1 .. ':0' or ''
end

-- Returns the shard key of a dedup key, and whose it is otherwise: the tenant in whose share it counts.
local function owner_of_key(q, field, text)
  local id, owner = match(text, '^%d+|([^|]*)|(.*)$')
  if not id then return nil end
  if q.rules.shares_keys then return owner, id, owner end
  local size, from = match(field, '^k:(%d+):()')
  return size and sub(field, from, from + size - 1), id, owner
end

-- Forgets a piece of its dedup keys. Returns the cursor to continue from, '' at the end.
local function empty_keys(q, target, cursor)
  local page = call('HSCAN', q.keys[DEDUP], cursor == '' and '0' or cursor, 'MATCH', 'k:*', 'COUNT', KEYS_SEEN)
  local gone = {}
  for at = 1, #page[2], 2 do
    local field = page[2][at]
    local key, id, owner = owner_of_key(q, field, page[2][at + 1])
    local number = key and match(id, '^%d+%-(%d+)')
    if number and number + 0 <= target.last and is_of(q, target, key) then
      gone[#gone + 1] = field
      Shares.count(q, 'D:', owner, -1)
    end
  end
  for from = 1, #gone, 1000 do
    local upto = min(#gone, from + 999)
    call('HDEL', q.keys[DEDUP], unpack(gone, from, upto)) -- at most 1,000: a part
    call('ZREM', q.keys[DEDUP_INDEX], unpack(gone, from, upto)) -- at most 1,000: a part
  end
  return page[1] ~= '0' and page[1] or ''
end

-- Marks a message in flight as cancelled, unless it is already. Says whether it did.
local function cancel_delivery(q, place, id, attempt, marks, key)
  if call('SADD', q.keys[CANCELLED], place .. ':' .. id) == 0 then return false end
  q.cancels = q.cancels + 1
  local body = place == 'd' and call('HGET', q.keys[BODIES], id)
  if body and find(Leases.flags_in(marks), 'u', 1, true) then Unique.release_key(q, body, id) end
  Leases.note_end(q, 'k', place, id, key, attempt)
  q.ended = q.ended or {}
  q.ended[#q.ended + 1] = body and Messages.message_id(id, match(body, '^%w+'), key) or id .. '-' .. place
  -- (A body of its own says whose it is, until the delivery ends.)
  if place ~= 'd' then Messages.drop_body(q, place, id) end
  State.count_up(q, 'cancelled', 1)
  return true
end

-- Looks at a piece of the leases, counts those that are meant, and may cancel their messages. Returns where to
-- continue.
local function look_at_flight(q, target, position, cancels)
  local first = tonumber(position) or 0
  local tokens = call('ZRANGEBYSCORE', q.keys[LEASES], '(' .. Ended.till(q), '(' .. NEVER, 'LIMIT', first, LOOKS / 4)
  for _, token in ipairs(tokens) do
    local place, id, attempt, marks, key = Leases.read_token(token)
    if place and is_of(q, target, key) and is_meant(target, id) then
      local is_cancelled = q.cancels > 0 and call('SISMEMBER', q.keys[CANCELLED], place .. ':' .. id) == 1
      if cancels and not is_cancelled and is_at_hand(q, target, place) then
        if cancel_delivery(q, place, id, attempt, marks, key) then target.cancelled = target.cancelled + 1 end
      elseif not is_cancelled then
        target.flight = target.flight + 1
      end
    end
  end
  return #tokens == LOOKS / 4 and spell(first + #tokens) or ''
end

local function empty_part(q, target, part, position)
  if part == 'waiting' then return empty_waiting(q, target, position) end
  if part == 'delayed' then return empty_delayed(q, target, position) end
  if part == 'stream' then return empty_stream(q, target, position) end
  if part == 'dead' then return empty_letters(q, target, position) end
  if part == 'keys' then return empty_keys(q, target, position) end
  return look_at_flight(q, target, position, part == 'cancel')
end

-- Says what is left of it at this moment outside of flight, dead letters included; '' if the accounts do not say that,
-- or how many deliveries are under way that are wanted.
local function left_of(q, target)
  local a = target.a
  if q.rules.window == 0 or target.name ~= a.name or q.cancels > 0 or Ended.may_be_some(q) then return '' end
  local letters = match(Shares.text_of(q, 'X:', a.name) or '0', '^%d+')
  return spell(a.taken + a.behind + a.delayed + letters)
end

-- @verb purge_of | allow-oom: remove a piece of what one shard key has (with parents: a parent and its children), of
-- messages up to a number: so it ends, however much is written meanwhile.
-- KEYS[1..19]: the first 19 of a queue (base.lua)
-- KEYS[20..] streams: for the part 'stream' the one to look through; else those in which messages lie
-- ARGV[1] who: the caller, and who asked for it (`Journal.who_of`)
-- ARGV[2] number: of this call (`read_number`): it is done once, however often it is tried
-- ARGV[3] shard_key: whose
-- ARGV[4] last: the number of the last message that is meant
-- ARGV[5] part: what to purge: 'waiting' (outside of the streams), 'delayed', 'stream', 'dead', 'keys' (dedup keys),
--   'flight' (they are only counted) or 'cancel' (those in flight)
-- ARGV[6] most: about how many
-- ARGV[7] position: where to continue, '' to start
-- Reply: {'OK', "waiting|delayed|dead|cancelled|in flight|what is left outside of flight, '' if not known|streams that
--        it lacks: 1,2|'1' if it is to be called again|position"} | {'NOQUEUE'} | {'STALE'} | {'FULL', 'max_producers'}
function verbs.purge_of(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 19)
  Arguments.check(ARGV, {'who', 'call_number', 'key', 'number', 'word', 'count', 'position'})
  Arguments.check_word(ARGV, 5, PARTS_OF_ONE)
  local producer, sequence, keep = Producers.read_number(ARGV[2])
  local q = Settle.open_change(KEYS, 19, producer or '')
  if not q then return {'NOQUEUE'} end
  Types.look_at_all(q)
  call('ZCARD', KEYS[PRODUCERS])
  local done = producer and Producers.check_call(q, sequence, keep, q.values[State.COMMON + 1])
  if done then return done end
  q.most, q.purged = ARGV[6] + 0, 0
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, ARGV[3]))
  local target = {
    name = ARGV[3], last = ARGV[4] + 0, a = a,
    room = ARGV[6] + 0, looks = LOOKS, places = {}, waiting = 0, delayed = 0, dead = 0, cancelled = 0, flight = 0,
  }
  local position = empty_part(q, target, ARGV[5], ARGV[7])
  if q.purged > 0 then State.count_up(q, 'purged', q.purged) end
  if target.dead > 0 then State.count_up(q, 'dead_deleted', target.dead) end
  local flight = (ARGV[5] == 'flight' or ARGV[5] == 'cancel') and target.flight or a.flight
  local told = concat({
    target.waiting, target.delayed, target.dead, target.cancelled, flight, left_of(q, target),
    concat(target.places, ','), position ~= '' and '1' or '0', position,
  }, '|')
  Producers.end_call(q, producer, told)
  if q.failed then Failures.save(q) end
  Settle.close_change(q, ARGV[1])
  return {'OK', told}
end
