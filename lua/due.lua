-- `due`: shard key -> the moment at which time changes something for it next: a delayed message comes due, a token
-- comes back, a pause ends, a bucket is full. `delayed` is a sorted set without scores, with members "size:name:<14
-- digits of ms>:place:id: attempts:key": the messages of an account together, soonest first (the key only where the
-- account is a parent's).

-- Says whether a delayed message waits for its next try: it was delivered before, and does not wait for room among the
-- dead letters.
function Due.is_retrying(attempts) return byte(attempts) ~= 48 and not find(attempts, 'r', 1, true) end -- 48 is '0'

-- Counts a message that comes to be delayed, or is delayed no more, among those that wait for their next try.
function Due.count_retrying(q, attempts, by)
  if Due.is_retrying(attempts) then State.count_up(q, 'retrying', by) end
end

function Due.put_off(q, a, key, at, place, id, attempts)
  local owned = key ~= a.name and key or ''
  local when = Waiting.prefix_of(a.name) .. spell_sortable(at)
  add(q, 'later', 0, when .. ':' .. place .. ':' .. id .. ':' .. attempts .. ':' .. owned)
  a.delayed = a.delayed + 1
  Due.count_retrying(q, attempts, 1)
  if not a.next_at or at < a.next_at then a.next_at = at end
end

local function comes_due(q, a, member, prefix)
  local at, place, id, attempts, key = match(member, '^(%d+):(%w+):([%d-]+):(%w+):(.*)$', #prefix + 1)
  add(q, 'not_later', member)
  a.delayed = a.delayed - 1
  Due.count_retrying(q, attempts, -1)
  -- Since its due time, not since now: its age is reported, and it stands by that.
  Waiting.come_due(q, a, key ~= '' and key or a.name, place, id, attempts, at + 0)
  Notifications.notify_reader(q)
end

-- A shard key that has more that is due gets behind all others that have something due now. The state remembers until
-- when shard keys were put off like this: if that lies ahead of the clock, the clock was set back, and somebody may be
-- hidden.
local function put_behind(q, a)
  if not q.last_due then
    local range = {q.keys[DUE], q.now + 0.999, '-inf', 'WITHSCORES', 'LIMIT', 0, 1}
    -- Behind the last one that has come by now, and by less than a ms: so it comes again in this ms, but after all
    -- others.
    q.last_due = (call('ZREVRANGEBYSCORE', unpack(range))[2] or q.now) + 0.001 -- at most 7: the words
    State.put_odd(q, 'late', spell_moment(q.last_due))
  end
  a.next_at = q.last_due
end

-- Returns where a walk begins because of the rules, or the clock, while another may be under way. One that is for
-- entries which vanished comes after it.
function Due.walk_for_rules(walk) return find(walk, 'v', 1, true) and '0v' or '0' end

-- Returns where a walk begins because entries vanished: somebody's account still says that it has them.
function Due.walk_for_vanished(walk)
  if walk == '' or byte(walk) == 118 then return 'v0' end -- 118 is 'v'
  return match(walk, '^%d+') .. 'v'
end

-- The clock was set back since the state last said what time it was: moments may lie far ahead that are due, so all
-- accounts are looked at.
function Due.note_set_back(q)
  q.walk = Due.walk_for_rules(q.walk)
  State.put_odd(q, 'late', '')
end

-- Moves what is due of a shard key, at most `share`.
local function bring_delayed(q, a, share)
  local prefix = Waiting.prefix_of(a.name)
  local members = call('ZRANGEBYLEX', q.keys[DELAYED], '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, share + 1)
  for at, member in ipairs(members) do
    local moment = sub(member, #prefix + 1, #prefix + 14) + 0
    if moment > q.now then
      -- The first one that lies ahead: at that moment the shard key is looked at again.
      a.next_at = moment
      return
    end
    if at > share then return put_behind(q, a) end
    comes_due(q, a, member, prefix)
  end
  if #members == 0 then a.delayed = 0 end
end

-- Looks at a piece of the shard keys whose moment has come. (Until now + 0.999, else what comes in this ms hides its
-- key.)
function Due.take_due(q)
  local key = q.keys[DUE]
  local list = call('ZRANGEBYSCORE', key, '-inf', q.now + 0.999, 'WITHSCORES', 'LIMIT', 0, q.piece)
  local names = {}
  for at = 1, #list, 2 do names[#names + 1] = list[at] end
  if #names > 0 then
    Types.look_at_all(q)
    -- Out of the index first: `Turns.schedule` puts each in again by its next moment, if it has one.
    call('ZREM', key, unpack(names)) -- at most 128: a piece
    Accounts.load_accounts(q, names)
    for _, name in ipairs(names) do
      if name == '' then call('ZADD', key, NEVER, '') end -- the sentinel is its account's member
      local a = q.accounts[name]
      a.look_at = 0
      -- An account with limits of its own, if only a pause, is never forgotten (`Accounts.save_account`).
      Limits.end_over(q, a)
      if a.weight and Rules.owner_of(q.rules, name) ~= name then Children.end_weight(q, a) end
      -- (A limited message has waked nobody.)
      if a.ruled and a.behind > 0 then Notifications.notify_readers(q, min(a.behind, Limits.allowance(a, q.now))) end
      if a.delayed > 0 then bring_delayed(q, a, max(1, floor(q.piece / #names))) end
    end
  end
  q.piece = max(LEAST_PIECE, q.piece - #names) -- among other things that time has brought
  local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  q.due_at = min(head + 0, FAR)
  q.more = q.more or q.due_at < q.now + 1
end

function Due.save_due(q)
  send(q, 'not_later', 'ZREM', DELAYED)
  send(q, 'later', 'ZADD', DELAYED)
  send(q, 'moments', 'ZADD', DUE)
end

-- Says whether all accounts are to be looked at. After entries were deleted by hand ('v') that waits until the streams
-- are empty: then no account has anything there.
function Due.is_walking(q) return q.walk ~= '' and (byte(q.walk) ~= 118 or q.shared == 0) end -- 118 is 'v'

-- After a change of rules, or when the clock was set back, all accounts are looked at once, a piece in each read.
function Due.walk_accounts(q)
  local kind, cursor, following = match(q.walk, '^(v?)(%d+)(v?)$')
  local is_for_vanished = kind == 'v'
  -- HSCAN shows every field that is there all the time. Accounts that come later know the rules already.
  local piece = call('HSCAN', q.keys[META], cursor, 'COUNT', q.piece)
  if piece[1] == '0' then
    q.walk = following == 'v' and 'v0' or ''
  else
    q.walk = kind .. piece[1] .. following
  end
  for at = 1, #piece[2], 2 do
    local name = match(piece[2][at], '^t:(.*)$')
    if name and is_for_vanished then
      local a = Accounts.find_account(q, name)
      a.taken = 0
    end
    if name and not q.accounts[name] and not tonumber(piece[2][at + 1]) then
      local a = Accounts.meet(q, name, piece[2][at + 1])
      a.look_at = 0
      -- Its moment may be wrong, so it is looked at by the next read, which finds the right one.
      if a.delayed > 0 then a.next_at = q.now end
    end
  end
  State.put_odd(q, 'walk', q.walk)
  if q.walk ~= '' then q.more = true end
end
