-- Verbs of a lease: settle, extend, lost.

-- Returns whether a capped shard key with waiting messages may use the place that was just freed.
local function frees_place(q)
  for _, name in ipairs(q.names) do
    local a = q.accounts[name]
    if a.ruled and a.cap > 0 and a.behind > 0 then return true end
  end
  return false
end

local STRIDES = {['a'] = 1, ['g'] = 1, ['n'] = 4, ['r'] = 4, ['u'] = 4} -- arguments of each lease, by kind
local MOST_LEASES = 250
local MOST_COSTS = 16384

-- Looks at what `settle` is given of leases, but the tokens, which it takes apart anyway.
local function check_leases(ARGV, stride)
  local size = #ARGV - 5
  if not stride or size < stride or size % stride ~= 0 or size > MOST_LEASES * stride or #ARGV[4] > MOST_COSTS then
    Arguments.refuse('there are ' .. size .. ' arguments for leases')
  end
  if stride == 1 then return end
  for at = 7, #ARGV, 4 do Arguments.check({ARGV[at], ARGV[at + 1], ARGV[at + 2]}, {'ms', 'error', 'failure'}) end
end

-- Looks at the counters with the state, if a try failed: then they are written with it. Returns where they are in
-- `values`, nil if none failed.
local function counters_of(kind, text, fields)
  if kind ~= 'r' and (kind ~= 'n' or text == '') then return nil end
  local first = #fields + 1
  fields[first], fields[first + 1] = 'failed', 'dead_lettered'
  return State.COMMON + 1 + first
end

-- Looks at the keys that the call may change while the tokens are gone through: bodies move, messages are buried, and a
-- cancelled one leaves `cancelled`. (An ack removes no more than its lease before `close_change`.)
local function look_at_types(q, kind, parts, delay)
  local is_plain = parts[6] == nil and q.cancels == 0 and parts[1] ~= 'l' and not q.rules.parents
    and not find(Leases.flags_in(parts[4]), 'u', 1, true)
  if is_plain and kind == 'r' then return Types.look_at_end(q, true) end
  local comes_again = kind == 'n' and delay == '0' and parts[3] + 0 < q.rules.deliveries
  if is_plain and comes_again then return Types.look_at_end(q, false) end
  Types.look_at_all(q)
end

-- The end of a call that is no ack.
local function end_others(q, producer, letters, counted)
  if counted then
    State.put_counted(q, 'failed', q.values[counted])
    State.put_counted(q, 'dead_lettered', q.values[counted + 1])
  end
  if producer then Producers.end_call(q, producer, letters) end
  if q.failed then Failures.save(q) end
end

-- @verb settle | allow-oom: end deliveries: their work is done, or they come again, or they are dead.
-- KEYS[1..19]: the first 19 of a queue (base.lua), or the first 5 alone
-- KEYS[20..] streams: the streams of the bodies, the legacy stream among them
-- ARGV[1] kind: 'a' ack | 'n' nack | 'r' reject | 'u' nack uncounted | 'g' given back unseen
-- ARGV[2] tried: of ack and 'g': the id of the message of each lease, with blanks between them, if an earlier try of it
--         may have happened, else '-'; '0' if no try of any may have. Of the others: the number of this call
--         (`read_number`), which is done once, however often it is tried
-- ARGV[3] parents: '1' if the caller believes that the queue has parents: so its accounts are looked at with the state
-- ARGV[4] costs: what each delivery costs, "12.5,-,=3000": see `read_cost`; '' if none costs anything
-- ARGV[5] client: what the journal calls the caller
-- ARGV[6..] leases: of ack and 'g' the tokens; else four each: token, delay in ms, error or reason, how the try failed
--           (`Failures.read_try`)
-- Reply: {now, a letter for each lease: o(k), l(ost), c(ancelled), d(ead)} | {'STALE'} | {'FULL', 'max_producers'}
function verbs.settle(KEYS, ARGV)
  if not call then begin() end
  local kind, parents = ARGV[1], ARGV[3]
  local stride = STRIDES[kind]
  check_leases(ARGV, stride)
  local _, fixed, keys = Arguments.check_plain(KEYS, 19)
  local parts, fields = Settle.look_at_tokens(ARGV, 6, stride, parents == '1')
  local accounts = #fields
  local producer, number, keep, counted
  if stride > 1 then
    producer, number, keep = Producers.read_number(ARGV[2])
    fields[accounts + 1] = producer
    counted = counters_of(kind, ARGV[9], fields)
  end
  local q = State.open_call(KEYS, fixed, 'lease_at', unpack(fields)) -- at most 251: a chunk, and a producer
  if not q then
    return {read_time(), rep('l', (#ARGV - 5) / stride)}
  end
  local v, first = q.values, State.COMMON + 1
  q.keys, q.lease_at, q.jump = keys, v[first] + 0, q.odd.jump and Clock.read_jump(q.odd.jump, q.now)
  if q.rules.journal > 0 then Journal.begin_events(q, ARGV[5]) end
  if kind ~= 'a' or q.cancels > 0 then look_at_types(q, kind, parts, ARGV[7]) end
  local answer = producer and Producers.check_call(q, number, keep, v[first + accounts + 1])
  if answer then return answer[1] == 'OK' and {q.now, answer[2]} or answer end
  if q.rules.parents == (parents == '1') then
    for at = 1, accounts do Accounts.meet(q, sub(fields[at], 3), v[first + at]) end
  else
    Settle.load_owners(q, parts)
  end
  if kind == 'r' then Settle.look_at_shares(q, parts) end
  local letters = Settle.settle_all(q, ARGV, 6, stride, parts, kind, ARGV[4], stride > 1 and '0' or ARGV[2])
  if stride > 1 then end_others(q, producer, letters, counted) end
  -- A blocked reader may have the messages that were given back unseen, or the place that is free under a cap.
  if q.waiting > q.now and (kind == 'g' or q.rules.total_cap > 0 or frees_place(q)) then
    for _ = 1, q.ended_leases do Notifications.notify_reader(q) end
  end
  Settle.close_change(q, ARGV[5])
  return {q.now, letters}
end

-- Says which of these leases are live, and of each that is its score: one that comes twice is there once.
local function judge_leases(q, ARGV, first, parts)
  local letters, live, seen = {}, {}, {}
  for at, score in ipairs(call('ZMSCORE', q.keys[LEASES], unpack(ARGV, first))) do -- at most 500: a chunk
    local token = ARGV[first - 1 + at]
    local handle = parts[at * PARTS - 4] .. ':' .. parts[at * PARTS - 3]
    if not Clock.is_live(q, score) then
      letters[at] = 'l'
    elseif q.cancels > 0 and call('SISMEMBER', q.keys[CANCELLED], handle) == 1 then
      letters[at] = 'c'
    else
      letters[at] = 'o'
      if not seen[token] then live[at], seen[token] = score + 0, true end
    end
  end
  return letters, live
end

-- Charges the time that live deliveries took since they were last charged. Says which were.
local function charge_so_far(q, parts, live, costs)
  Settle.load_owners(q, parts)
  if q.rules.parents then Settle.load_children(q, parts) end
  local charged, at = {}, 0
  for cost in gmatch(costs, '[^,]+') do
    at = at + 1
    local key = parts[at * PARTS]
    local a = live[at] and q.accounts[Rules.owner_of(q.rules, key)]
    local n = at * PARTS
    charged[at] = a and Leases.charge_so_far(q, a, key, parts[n - 1], cost)
    if charged[at] then Leases.note_end(q, 't', parts[n - 4], parts[n - 3], key, parts[n - 2]) end
  end
  if q.children then Children.save(q) end
  Turns.save_accounts(q)
  Turns.begin_effects(q)
  Virtual.look_again(q)
  return charged
end

local function move_leases(q, ARGV, first, live, charged, ends)
  local words, n = {}, 0
  for at, score in pairs(live) do
    local till = charged[at] and q.now or Leases.charged_until(score)
    words[n + 1], words[n + 2] = Leases.spell_end(ends, till and ends - till), ARGV[first - 1 + at]
    n = n + 2
  end
  -- With XX no lease comes to be that was not there.
  call('ZADD', q.keys[LEASES], 'XX', unpack(words)) -- at most 1,000: a chunk
end

-- @verb extend | allow-oom: move the deadline of live leases, or only tell which are live.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] visibility: the leases end this many ms from now; '' = they stay as they are
-- ARGV[2] costs: what each delivery costs since it was last charged, as of `settle`
-- ARGV[3] client: what the journal calls the caller
-- ARGV[4..] tokens: of the leases
-- Reply: {now, a letter for each lease: o(k), l(ost), c(ancelled)}
function verbs.extend(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'ms_or_none', 'costs', 'client'}, {'token'}, 500)
  local visibility = tonumber(ARGV[1])
  local costs = ARGV[2]
  local q = State.open_call(KEYS, 18, 'lease_at')
  if not q then
    return {read_time(), rep('l', #ARGV - 3)}
  end
  local lease_at = q.values[State.COMMON + 1] + 0
  q.jump = q.odd.jump and Clock.read_jump(q.odd.jump, q.now)
  local parts = Settle.look_at_tokens(ARGV, 4, 1, q.rules.parents)
  local letters, live = judge_leases(q, ARGV, 4, parts)
  if visibility and next(live) then
    -- A delivery that is over is charged by whatever ended it.
    if costs ~= '' and q.rules.journal > 0 then Journal.begin_events(q) end
    local charged = costs ~= '' and charge_so_far(q, parts, live, costs) or {}
    local ends = q.now + visibility
    move_leases(q, ARGV, 4, live, charged, ends)
    -- `lease_at` is a bound from below, so a lease that moves away from it changes nothing: the next read that looks
    -- corrects it.
    if ends < lease_at then State.put(q, 'lease_at', spell(ends)) end
    Notifications.announce_moment(q, ends)
  end
  State.save_state(q)
  Settle.save_rest(q)
  if q.wakes then Notifications.wake_readers(q) end
  if q.events then Journal.save_events(q, ARGV[3]) end
  return {q.now, concat(letters)}
end

local REMEMBERED_FOR = 120000 -- ms for which a read is remembered that is given up on
local REMEMBERED_TEXT = 1400 -- letters of those before it: 60 of them

-- @verb lost | allow-oom: find what a read was granted whose reply was lost. All leases of a read have one
-- deadline, which is not known at first: they are looked for from the latest end on, and as soon as one is found, only
-- that end is looked at.
-- KEYS[1] meta: the reads that are given up on
-- KEYS[2] leases: tokens by end
-- ARGV[1] holder: of the lost read
-- ARGV[2] from: its leases end at this server time in ms or later
-- ARGV[3] visibility: ms that they last
-- ARGV[4] page: look at this many leases
-- ARGV[5] where: to continue, as the last call replied: "from|upto"; '' in the first one
-- Reply: {the next call's `where`, '' when there is no more to look for, {token, ...}}
function verbs.lost(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'leases'})
  Arguments.check(ARGV, {'word', 'ms', 'ms', 'leases', 'where'})
  local now = read_time()
  local holder, page, where = ARGV[1], ARGV[4] + 0, ARGV[5]
  local from = ARGV[2] + 0
  local upto = now + ARGV[3]
  -- Once for a lost read, in the first call: a read that is still under way shall lease nothing any more (`is_void`),
  -- or it would do so behind the back of this search.
  if where == '' then
    local odd = call('HGET', KEYS[1], 'odd')
    if not odd then return {'', {}} end
    check_types({}, {KEYS[2]}, {})
    local till, others = match(State.read_odd(odd).void or '', '^(%d+)|(.*)$')
    if not till or till + 0 <= now then others = '' end
    others = sub(others, 1, REMEMBERED_TEXT)
    State.set_odd(KEYS[1], 'void', spell(now + REMEMBERED_FOR) .. '|' .. holder .. ',' .. others)
  else
    from, upto = match(where, '^(%d+)|(%d+)$')
  end
  local found = call('ZREVRANGEBYSCORE', KEYS[2], upto, from, 'WITHSCORES', 'LIMIT', 0, page)
  local tokens = {}
  for at = 1, #found, 2 do
    if match(found[at], '^[^:]+:[^:]+:%d+:([^:]*)') == holder then
      tokens[#tokens + 1] = found[at]
      -- All leases of a read end together: the first one that is found says where to look for the others.
      from = found[at + 1]
    end
  end
  -- The end of the last one once more, and nothing later: others with the same end may be on the next page.
  -- (Between two whole ms lie leases that were extended, and none of this read.)
  local last = #found == 2 * page and floor(found[#found])
  local goes_on = last and last >= from + 0
  return {goes_on and format('%.0f|%.0f', from, last) or '', tokens}
end
