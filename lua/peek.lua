-- Verbs that list messages in the order in which they would be delivered, come due, or are given back: peek, held, due,
-- leased, fetch. They only read. Each lists at most `most` messages, and none more after `bytes` of them.
local MOST_CHILDREN = 1000 -- of one parent

local function begin_list(ARGV)
  return {rows = {}, most = ARGV[1] + 0, bytes = ARGV[2] + 0, seen = 0, is_bare = ARGV[3] ~= '1'}
end

local function is_full(list) return #list.rows >= list.most or list.seen >= list.bytes end

local function add_row(list, row, size)
  list.rows[#list.rows + 1], list.seen = row, list.seen + size
end

local function strip_payload(fields)
  local bare = {unpack(fields, 1, 8)} -- at most 8: mark, key, tag, payload, attributes, headers
  if bare[4] then bare[4] = Messages.spell_bare(bare[4]) end
  return bare
end

local function size_of_fields(fields)
  local size = 0
  for _, value in ipairs(fields) do size = size + #value end
  return size
end

-- Looks at what one stream has after an entry. Returns the rows, the last entry, how many were looked at, and '1' if
-- nothing comes after them.
local function peek_stream(list, key, after, shard_key)
  local rows, looked, left = {}, 0, list.most
  -- Messages may be large: few at first, so that one page does not read much more than it may return.
  local asked = min(left, 4)
  while asked > 0 and list.seen < list.bytes do
    local before = list.seen
  local entries = call('XRANGE', key, '(' .. after, '+', 'COUNT', asked)
    for _, entry in ipairs(entries) do
      local fields = entry[2]
      list.seen, after = list.seen + size_of_fields(fields), entry[1]
      if shard_key == '' or Messages.is_ours(fields) and fields[2] == shard_key then
        rows[#rows + 1] = {looked, after, list.is_bare and strip_payload(fields) or fields}
      end
      looked = looked + 1
    end
    if #entries < asked then return {rows, after, looked, '1'} end
    -- Few at first, then as many as fit, given how large these were.
    local fitting = floor((list.bytes - list.seen) * asked / max(1, list.seen - before))
    left = left - asked
    asked = min(left, max(1, fitting))
  end
  return {rows, after, looked, ''}
end

-- @verb peek | no-writes: look at what some streams have undelivered, in the order in which it would be delivered.
-- KEYS[1] meta: cursor per stream
-- KEYS[2..] streams: those to look at
-- ARGV[1] most: how many messages of each stream to look at
-- ARGV[2] bytes: after this many bytes no more messages are looked at
-- ARGV[3] payloads: '1' with payloads; else the size of each payload is in its place, and how it begins
-- ARGV[4] shard_key: only its messages, '' for all
-- ARGV[5..] points: two for each stream: its number, and the entry to continue after, '' for the cursor
-- Reply: of each stream {{{how many of these stand before it, entry id, fields}, ...}, the last entry that was looked
--        at, how many that were, '1' if nothing comes after it}
function verbs.peek(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check(ARGV, {'count', 'bytes', 'flag', 'key_or_none'}, {'stream', 'id_or_none'}, 1000)
  local list = begin_list(ARGV)
  local found = {}
  for at = 2, #KEYS do
    local after = ARGV[2 * at + 2]
    if after == '' then after = call('HGET', KEYS[1], 'h' .. ARGV[2 * at + 1]) or '0-0' end
    found[at - 1] = peek_stream(list, KEYS[at], after, ARGV[4])
  end
  return found
end

-- Lists what was given back, after a member. As many of these may come next as the limits of the account let through.
local function list_returned(q, list, holder, after)
  local prefix = Waiting.prefix_of(holder.name)
  local ahead = after and call('ZLEXCOUNT', q.keys[RETURNED], '[' .. prefix, '[' .. after) or 0
  local from = after and '(' .. after or '[' .. prefix
  local left = list.most - #list.rows
  for _, member in ipairs(call('ZRANGEBYLEX', q.keys[RETURNED], from, '(' .. prefix .. '\255', 'LIMIT', 0, left)) do
    local place, id, attempts, flags, since =
      match(member, '^%a%d+:(%w+):([%d-]+):(%d+)(%a*):(%d+)$', #prefix + 1)
    local body = place == 'd' and call('HGET', q.keys[BODIES], id)
    local origin, fields, size
    if body then origin, fields, size = Messages.fields_of_body(q.keys[BODIES], id, body, nil, list.is_bare) end
    local known = DeadLetters.spell_known(q, id, attempts, flags, since + 0)
    local may_come = list.may_come and Limits.reason_of(q, list.account, ahead) == ''
    local standing = may_come and 'waiting' or 'held_back'
    ahead = ahead + 1
    local row = {list.name, holder.name, 'r' .. member, place, id, known, origin or place, standing, fields or {}}
    add_row(list, row, size or 0)
    if is_full(list) then return end
  end
end

local function list_overflow(q, list, holder, block, offset)
  local key = holder.name
  local is_next = list.may_come and holder.returned == 0 and block == 0 and offset == 0
  Overflow.look_at_records(q, holder, Waiting.overflow_base(key), block, offset, function(record, number, behind)
    local id, mark, rest = match(record, '^(%d+%-%d+)(.)()')
    local body = mark == Messages.REFERENCE and call('HGET', q.keys[BODIES], id)
      or Messages.spell_head('o', mark, key) .. sub(record, rest)
    local origin, fields, size = Messages.fields_of_body(q.keys[BODIES], id, body, nil, list.is_bare)
    local position = 'o' .. number .. '.' .. behind
    local known = DeadLetters.spell_known(q, id, 0, '', match(id, '^%d+') + 0)
    local standing = is_next and 'waiting' or 'held_back'
    add_row(list, {list.name, key, position, 'd', id, known, origin, standing, fields}, size)
    is_next = false
    return not is_full(list)
  end)
end

-- Lists what one holder has after a position: 'r' and a member of `returned`, or 'o', a block and a place in it.
local function list_holder(q, list, holder, position)
  local stage = sub(position, 1, 1)
  if stage ~= 'o' and holder.returned > 0 then
    list_returned(q, list, holder, stage == 'r' and sub(position, 2))
    if is_full(list) then return end
  end
  local block, offset = match(position, '^o(%d+)%.(%d+)$')
  list_overflow(q, list, holder, (block or 0) + 0, (offset or 0) + 0)
end

-- Lists what a parent's children have, in the order of their turns, from `child` on.
local function list_children(q, list, a, child, position)
  for _, holder in ipairs(Children.listed(q, a, child, MOST_CHILDREN)) do
    list_holder(q, list, holder, holder.name == child and position or '')
    if is_full(list) then return end
  end
end

-- @verb held | no-writes: list what waits outside of the streams, of one shard key after the other.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] most: how many messages
-- ARGV[2] bytes: after this many bytes no more messages are looked at
-- ARGV[3] payloads: '1' with payloads; else the size of each payload is in its place, and how it begins
-- ARGV[4] only: one shard key of a parent's children, '' for all
-- ARGV[5] child: for the first name, the shard key to continue with
-- ARGV[6] position: in that one
-- ARGV[7..] names: of shard keys (or parents)
-- Reply: {how many of the names were looked at whole, {{name, shard key, position behind it, place, entry id, what is
--        known, origin, 'waiting' | 'held_back', fields ({} where it lies in a stream)}, ...}}
function verbs.held(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'count', 'bytes', 'flag', 'key_or_none', 'key_or_none', 'position'}, {'key_or_none'}, 500)
  local q = State.open_call(KEYS, 18)
  local list = begin_list(ARGV)
  if not q then return {#ARGV - 6, {}} end
  Accounts.load_accounts(q, {unpack(ARGV, 7)}) -- at most 500: a page of names
  for at = 7, #ARGV do
    local a = q.accounts[ARGV[at]]
    local position = at == 7 and ARGV[6] or ''
    list.account, list.name = a, ARGV[at]
    list.may_come = a.taken == 0 and Limits.reason_of(q, a, 0) == ''
    if a.behind > 0 and not q.rules.parents then
      list_holder(q, list, a, position)
    elseif a.behind > 0 and ARGV[4] ~= '' then
      list_holder(q, list, Children.child_of(q, ARGV[4]), position)
    elseif a.behind > 0 then
      list_children(q, list, a, at == 7 and ARGV[5] or '', position)
    end
    if is_full(list) then return {at - 7, list.rows} end
  end
  return {#ARGV - 6, list.rows}
end

-- Returns where to continue among the delayed messages of a shard key, behind this time and this member. They are
-- listed by time, and of one time by the members.
local function from_delayed(prefix, after, member)
  if not after then return '[' .. prefix end
  if sub(member, 1, #prefix) == prefix then return '(' .. member end
  return '[' .. prefix .. spell_sortable(prefix > member and after or after + 1)
end

-- @verb due | no-writes: list delayed messages of some shard keys, of each those that come due first.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] most: how many of each
-- ARGV[2] after: the time in ms behind which to continue, '' to start
-- ARGV[3] after_member: and of that time only what stands behind this member
-- ARGV[4..] names: of shard keys (or parents)
-- Reply: {now, {{time in ms, member, place, entry id, what is known}, ...}}
function verbs.due(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'count', 'moment_or_none', 'position'}, {'key_or_none'}, 500)
  local q = State.open_call(KEYS, 18)
  local rows, after = {}, tonumber(ARGV[2])
  if not q then return {0, {}} end
  for at = 4, #ARGV do
    local prefix = Waiting.prefix_of(ARGV[at])
    local from = from_delayed(prefix, after, ARGV[3])
    local upto = '(' .. prefix .. '\255'
    for _, member in ipairs(call('ZRANGEBYLEX', KEYS[DELAYED], from, upto, 'LIMIT', 0, ARGV[1] + 1)) do
      local time, place, id, attempts, flags = match(member, '^(%d+):(%w+):([%d-]+):(%d+)(%a*):', #prefix + 1)
      time = time + 0
      rows[#rows + 1] = {spell(time), member, place, id, DeadLetters.spell_known(q, id, attempts, flags, time)}
    end
  end
  return {q.now, rows}
end

-- @verb leased | no-writes: list leases, those first that end first.
-- KEYS[1..18]: the first 18 of a queue (base.lua)
-- ARGV[1] after: the token to continue behind, '' to start
-- ARGV[2] time: when that one ended by the index, in ms
-- ARGV[3] most: how many
-- Reply: {now, {{token, its time in the index, when it ends in ms, what is known}, ...}}. After a jump of the server's
--        clock, leases from before it end later than the index says.
function verbs.leased(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_first(KEYS, 18)
  Arguments.check(ARGV, {'token_or_none', 'moment_or_none', 'count'})
  local q = State.open_call(KEYS, 18)
  local rows = {}
  if not q then return {0, {}} end
  q.jump = Clock.read_jump(q.odd.jump, q.now)
  -- By the token's rank as long as it is there; else behind its time, where leases of the same ms are passed over.
  local rank = ARGV[1] ~= '' and call('ZRANK', KEYS[LEASES], ARGV[1])
  local start = rank and rank + 1 or ARGV[1] ~= '' and call('ZCOUNT', KEYS[LEASES], '-inf', ARGV[2]) or 0
  local list = call('ZRANGE', KEYS[LEASES], start, start + ARGV[3] - 1, 'WITHSCORES')
  for at = 1, #list, 2 do
    local token = list[at]
    local score = ceil(list[at + 1])
    local _, id, attempt, marks = Leases.read_token(token)
    if id then
      local ends = q.jump and score < q.jump.to and score + q.jump.by or score
      local known = DeadLetters.spell_known(q, id, attempt, Leases.flags_in(marks), 0)
      rows[#rows + 1] = {token, spell(score), spell(ends), known}
    end
  end
  return {q.now, rows}
end

-- @verb fetch | no-writes: read messages by where they lie.
-- KEYS[1] bodies: those outside of the streams
-- KEYS[2..] streams: of the others
-- ARGV[1] bytes: that is enough
-- ARGV[2] payloads: '1' with payloads; else the size of each payload is in its place, and how it begins
-- ARGV[3..] places: "place:entry id"
-- Reply: {{origin, fields} or false for one that is gone, ...}; of fewer than were asked for if these are large
function verbs.fetch(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'bodies'})
  Arguments.check(ARGV, {'bytes', 'flag'}, {'place'}, 1000)
  local keys, found, size = {}, {}, 0
  local is_bare = ARGV[2] ~= '1'
  for at = 2, #KEYS do keys[match(KEYS[at], ':s(%d+)$') or 'l'] = KEYS[at] end
  for at = 3, #ARGV do
    local place, id = match(ARGV[at], '^(%w+):(.*)$')
    local body = place == 'd' and call('HGET', KEYS[1], id)
    local entry = place ~= 'd' and keys[place] and call('XRANGE', keys[place], id, id)[1]
    if body then
      local origin, fields, its_size = Messages.fields_of_body(KEYS[1], id, body, nil, is_bare)
      found[#found + 1], size = {origin, fields}, size + its_size
    elseif entry then
      found[#found + 1] = {place, is_bare and strip_payload(entry[2]) or entry[2]}
      size = size + size_of_fields(entry[2])
    else
      found[#found + 1] = false
    end
    if size >= ARGV[1] + 0 then break end
  end
  return found
end
