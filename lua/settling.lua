-- Verbs of a lease: settle, extend, lost.

-- @verb settle | allow-oom: end deliveries: their work is done, or they come again, or they are dead.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- KEYS[19..] streams: the streams of the bodies, the legacy stream among them
-- ARGV[1] kind: 'a' ack | 'n' nack | 'r' reject | 'u' nack uncounted | 'g' given back unseen
-- ARGV[2] repeated: '1' when an earlier try of this call may have happened
-- ARGV[3] parents: '1' if the caller believes that the queue has parents: so its accounts are looked at with the state
-- ARGV[4] costs: ms that each delivery took, "12,-,3"; '' if none is charged
-- ARGV[5] client: what the journal calls the caller
-- ARGV[6..] leases: of ack and 'g' the tokens; else three each: token, delay in ms, error or reason
-- Reply: {now, a letter for each lease: o(k), l(ost), c(ancelled), d(ead)}
function verbs.settle(KEYS, ARGV)
  if not call then begin() end
  local kind, parents = ARGV[1], ARGV[3]
  local stride = (kind == 'a' or kind == 'g') and 1 or 3
  local parts, fields = Settle.look_at_tokens(ARGV, 6, stride, parents == '1')
  local q = State.open_call(KEYS, 18, 'lease_at', unpack(fields)) -- at most 250: a chunk
  if not q then
    return {read_time(), rep('l', (#ARGV - 5) / stride)}
  end
  local v, first = q.values, State.COMMON + 1
  q.lease_at, q.jump = v[first] + 0, q.odd.jump and Clock.read_jump(q.odd.jump, q.now)
  if q.rules.journal > 0 then Journal.begin_events(q) end
  if kind ~= 'a' or q.cancels > 0 then Types.look_at_all(q) end
  if q.rules.parents == (parents == '1') then
    for at = 1, #fields do Accounts.meet(q, sub(fields[at], 3), v[first + at]) end
  else
    Settle.load_owners(q, parts)
  end
  local letters = Settle.settle_all(q, ARGV, 6, stride, parts, kind, ARGV[4], ARGV[2] == '1')
  if kind == 'g' or q.rules.total_cap > 0 then
    for _ = 1, q.ended_leases do Notifications.notify_reader(q) end
  end
  Settle.close_change(q, ARGV[5])
  return {q.now, letters}
end

-- @verb extend | allow-oom: move the deadline of live leases, or only tell which are live.
-- KEYS[1] meta: the clock's last jump, who waits
-- KEYS[2] notifications: wakes blocked readers
-- KEYS[3] leases: tokens by end
-- KEYS[4] cancelled: messages that were cancelled while they are in flight
-- ARGV[1] visibility: the leases end so many ms from now; '' = they stay as they are
-- ARGV[2..] tokens: of the leases
-- Reply: {now, a letter for each lease: o(k), l(ost), c(ancelled)}
function verbs.extend(KEYS, ARGV)
  if not call then begin() end
  local now = read_time()
  local odd, text, lease_at = unpack(call('HMGET', KEYS[1], 'odd', 'line', 'lease_at')) -- at most 3: the fields
  local line = State.read_line(text or State.NO_LINE)
  odd = State.read_odd(odd or '')
  local q = new_q{now = now, jump = Clock.read_jump(odd.jump, now)}
  local visibility, letters, moved = tonumber(ARGV[1]), {}, {}
  for at, score in ipairs(call('ZMSCORE', KEYS[3], unpack(ARGV, 2))) do -- at most 500: a chunk
    local token = ARGV[1 + at]
    local place, id = Leases.read_token(token)
    if not Clock.is_live(q, score) then
      letters[at] = 'l'
    elseif line[7] > 0 and call('SISMEMBER', KEYS[4], place .. ':' .. id) == 1 then
      letters[at] = 'c'
    else
      letters[at] = 'o'
      moved[#moved + 1], moved[#moved + 2] = spell(now + (visibility or 0)), token
    end
  end
  if visibility and #moved > 0 then
    call('ZADD', KEYS[3], 'XX', unpack(moved)) -- at most 1,000: a chunk
    if now + visibility < lease_at + 0 then call('HSET', KEYS[1], 'lease_at', spell(now + visibility)) end
    -- A lease that ends soon may end before a blocked reader looks again.
    if visibility < Notifications.SOON and line[6] > now then
      Notifications.wake_reader(KEYS[2], '')
    end
  end
  return {now, concat(letters)}
end

local REMEMBERED_FOR = 120000 -- ms for which a read is remembered that is given up on
local REMEMBERED_TEXT = 1400 -- letters of those before it: 60 of them

-- @verb lost | allow-oom: find what a read was granted of which the reply was lost. All leases of a read have one
-- deadline, which is not known at first: they are looked for from the latest end on, and as soon as one is found, only
-- that end is looked at.
-- KEYS[1] meta: the reads that are given up on
-- KEYS[2] leases: tokens by end
-- ARGV[1] holder: of the lost read
-- ARGV[2] from: its leases end at this server time in ms or later
-- ARGV[3] visibility: ms that they last
-- ARGV[4] page: look at so many leases
-- ARGV[5] where: to go on, as the last call replied: "from|upto"; '' in the first one
-- Reply: {the next call's `where`, '' when there is no more to look for, {token, ...}}
function verbs.lost(KEYS, ARGV)
  if not call then begin() end
  local now = read_time()
  local holder, page, where = ARGV[1], ARGV[4] + 0, ARGV[5]
  local from = ARGV[2] + 0
  local upto = now + ARGV[3]
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
      from = found[at + 1]
    end
  end
  local last = #found == 2 * page and found[#found] + 0
  local goes_on = last and last >= from + 0
  return {goes_on and format('%.0f|%.0f', from, last) or '', tokens}
end
