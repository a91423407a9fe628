-- The overflow: what the admission window holds back. It is one sorted set with a run of members for each shard key, in the
-- order of writing. A member is what one call wrote of it, "length:key:<letter>n,n,...:streams:place:ms": the numbers in the
-- messages' ids, the streams that they may go to, '!' after the place if more is known of them. The letter says how many
-- digits the first number has, so that members sort by it. So what is held costs no other entry, and a batch of it one member.
--- @use lists, children, accounts
local MOST_NUMBERS = 64
local FIRST_RUN = '(' -- the place before all runs
local MOST_RETURNED = 32 -- numbers in a member, of messages that were given back

-- Puts the letter before a list of numbers that says how many digits the first one has.
local function mark_numbers(numbers)
  return string.char(64 + #string.match(numbers, '^%d+')) .. numbers
end

-- Notes in `q.runs` that a message waits in the overflow of its shard key. Returns true if it is the first one of this call.
local function hold_message(q, number, shard_key)
  local runs = q.runs
  local run = runs[shard_key]
  if run then
    run[#run + 1] = number
    return false
  end
  runs[shard_key] = {number}
  return true
end

-- Lists the members for what a call holds back of a shard key. `start` is "length:key:", `rest` is ":streams:place:ms".
local function list_members(members, start, numbers, rest)
  local at = #members
  if not numbers[2] then
    local number = numbers[1]
    members[at + 1], members[at + 2] = '0', start .. string.char(64 + #number) .. number .. rest
    return
  end
  for from = 1, #numbers, MOST_NUMBERS do
    local list = table.concat(numbers, ',', from, math.min(#numbers, from + MOST_NUMBERS - 1))
    members[at + 1], members[at + 2], at = '0', start .. mark_numbers(list) .. rest, at + 2
  end
end

-- Appends what this call holds back to the runs of its shard keys. `shards` has the streams that each may go to, as text.
local function save_held(q, shard_keys, shards)
  local members, written_at = {}, ':d:' .. string.sub(q.prefix, 1, -2)
  for at, key in ipairs(shard_keys) do
    local numbers = q.runs[key]
    list_members(members, spell_number(q, #key) .. ':' .. key .. ':', numbers, ':' .. shards[at] .. written_at)
    if q.has_parents then count_child(q, find_account(q, key), key, #numbers, 0) end
  end
  if #members > 0 then redis.call('ZADD', q.overflow, unpack(members)) end -- at most 1,000: two for each of a write
end

-- Writes down what was taken out of runs: members that are gone, and what is left of those that were taken in part.
local function save_taken(q)
  local gone, left = q.gone_members, q.left_members
  act_in_parts(gone, function(from, upto) redis.call('ZREM', q.overflow, unpack(gone, from, upto)) end)
  act_in_parts(left, function(from, upto) redis.call('ZADD', q.overflow, unpack(left, from, upto)) end)
  q.gone_members, q.left_members = {}, {}
end

-- Takes the messages of one member of a shard key's run until `items` has `wanted`. What is left of the member is noted.
local function take_member(q, shard_key, run, member, wanted, items)
  local numbers, shard, place, more, ms = string.match(member, '^([%d,]+):([%d,-]*):(%w+)(!?):(%d+)$', #run + 3)
  local start, at, size, is_known = ms .. '-', 1, #items, more ~= ''
  local gone = q.gone_members
  gone[#gone + 1] = member
  repeat
    local number, after = string.match(numbers, '^(%d+),?()', at)
    size, at = size + 1, after
    local id = start .. number
    items[size] = {
      handle = place .. ':' .. id, id = id, number = tonumber(number), place = place, shard = shard, is_known = is_known, shard_key = shard_key,
    }
  until at > #numbers or size == wanted
  if at <= #numbers then
    local left = q.left_members
    left[#left + 1] = '0'
    left[#left + 1] = run .. ':' .. mark_numbers(string.sub(numbers, at)) .. ':' .. shard .. ':' .. place .. more .. ':' .. ms
  end
end

-- Takes the first messages out of a shard key's run, at most so many, and appends them to `items`: each has its handle, its
-- place, the streams that it may go to, whether more is known of it, and its shard key. The overflow is changed by
-- `save_taken`, which must come before the same run is looked at again.
local function take_from_run(q, shard_key, most, items)
  local run, wanted = spell_number(q, #shard_key) .. ':' .. shard_key, #items + most
  local from, upto, members = '[' .. run .. ':', '(' .. run .. ';', nil
  repeat
    members = redis.call('ZRANGEBYLEX', q.overflow, from, upto, 'LIMIT', 0, math.min(wanted - #items, 8))
    for _, member in ipairs(members) do
      if #items == wanted then break end
      take_member(q, shard_key, run, member, wanted, items)
    end
    if #items < wanted and #members > 0 then from = '(' .. members[#members] end
  until #items == wanted or #members == 0
  if #q.gone_members > 1000 then save_taken(q) end
end

-- Takes messages of an account's children, each in its turn, until `items` has `wanted`.
local function take_from_children(q, account, wanted, items)
  local before
  repeat
    before = #items
    for _, chosen in ipairs(choose_children(q, account, wanted - #items)) do
      take_from_run(q, chosen.key, chosen.count, items)
      count_child(q, account, chosen.key, -chosen.count, chosen.count)
    end
    save_taken(q)
  until #items == before or #items == wanted
end

-- Takes the first messages out of an account's overflow, at most so many, and appends them to `items`. If fewer are there than
-- were counted, none is left. Returns how many were taken. If they are admitted, they count in the shared streams from now on.
local function take_held(q, account, most, items, is_admitted)
  local before = #items
  if q.has_parents then
    take_from_children(q, account, before + most, items)
  else
    take_from_run(q, account.name, most, items)
  end
  local taken = #items - before
  count_messages(q, account, is_admitted and taken or 0, taken < most and -account.held or -math.min(account.held, taken))
  return taken
end

-- Takes the next message out of the overflow of a plain account, to be admitted, without a table for it. Returns its handle and
-- the streams that it may go to; or nil if more is known of it, or none is there, which `take_plain` sees to.
local function take_next(q, name)
  local run = (q.texts[#name] or spell_number(q, #name)) .. ':' .. name
  local member = redis.call('ZRANGEBYLEX', q.overflow, '[' .. run .. ':', '(' .. run .. ';', 'LIMIT', '0', '1')[1] -- texts: they take less than numbers
  if not member then return nil end
  local number, more, shard, ms = string.match(member, '^(%d+),?([%d,]*):([%d,-]*):d:(%d+)$', #run + 3)
  if not number then return nil end
  local gone, held = q.gone_members, q.behind[name]
  gone[#gone + 1] = member
  if more ~= '' then
    local left = q.left_members
    left[#left + 1], left[#left + 2] = '0', run .. ':' .. mark_numbers(more) .. ':' .. shard .. ':d:' .. ms
  end
  q.plain[name], q.behind[name], q.held = q.plain[name] + 1, held > 1 and held - 1 or nil, math.max(0, q.held - 1)
  return 'd:' .. ms .. '-' .. number, shard
end

-- Takes the first messages out of the overflow of a plain account, like `take_held`.
local function take_plain(q, name, most, items, is_admitted)
  local plain, behind, before = q.plain, q.behind, #items
  take_from_run(q, name, most, items)
  local held, taken = behind[name], #items - before
  local left = taken < most and 0 or math.max(0, held - taken)
  behind[name], q.held = left > 0 and left or nil, math.max(0, q.held - held + left)
  if is_admitted then plain[name] = plain[name] + taken end
  if plain[name] + left == 0 then q.active = math.max(0, q.active - 1) end
end

-- Returns what the members of a shard key's run begin with.
local function run_prefix(shard_key)
  return #shard_key .. ':' .. shard_key .. ':'
end

-- Finds the member of a run that a number lies in, or would: the last one that begins at or before it. Returns the member, its
-- numbers, and what else it says, "streams:place:ms".
local function find_member(q, run, number)
  local upto = '(' .. run .. mark_numbers(number) .. ';'
  local member = redis.call('ZREVRANGEBYLEX', q.overflow, upto, '[' .. run, 'LIMIT', 0, 1)[1]
  local list, rest = string.match(string.sub(member or '', #run + 2), '^([%d,]+):(.*)$')
  local numbers = {}
  for each in string.gmatch(list or '', '%d+') do numbers[#numbers + 1] = each end
  return member, numbers, rest
end

-- Says whether nothing of a run lies between these two numbers.
local function is_gap(q, run, first, last)
  local upto = '(' .. run .. mark_numbers(last) .. ';'
  local member = redis.call('ZREVRANGEBYLEX', q.overflow, upto, '[' .. run, 'LIMIT', 0, 1)[1]
  return not member or tonumber(string.match(member, '(%d+):', #run + 2)) < tonumber(first)
end

-- Notes a member that is to be added to a run; `save_added` adds all of them.
local function add_member(q, run, numbers, rest)
  local added = q.added_members
  added[#added + 1], added[#added + 2] = '0', run .. mark_numbers(numbers) .. ':' .. rest
end

-- Writes down the members that were noted.
local function save_added(q)
  local added = q.added_members
  act_in_parts(added, function(from, upto) redis.call('ZADD', q.overflow, unpack(added, from, upto)) end)
  q.added_members = {}
end

-- Inserts one message into a run. If a member has numbers on both sides of it, that member is cut in two.
local function insert_held(q, run, number, rest)
  local member, numbers, its_rest = find_member(q, run, number)
  if member and tonumber(numbers[#numbers]) > tonumber(number) then
    local cut = 1
    while tonumber(numbers[cut]) < tonumber(number) do cut = cut + 1 end
    redis.call('ZREM', q.overflow, member)
    add_member(q, run, table.concat(numbers, ',', 1, cut - 1), its_rest)
    add_member(q, run, table.concat(numbers, ',', cut), its_rest)
  end
  add_member(q, run, number, rest)
  save_added(q)
end

-- Adds messages to a run of which one member can say all: the same but for their numbers, which have the same count of digits.
-- If something of the run lies between them, each gets a member of its own.
local function hold_group(q, run, numbers, rest, is_free)
  if is_free or is_gap(q, run, numbers[1], numbers[#numbers]) then
    add_member(q, run, table.concat(numbers, ','), rest)
    return
  end
  save_added(q)
  for _, number in ipairs(numbers) do insert_held(q, run, number, rest) end
end

-- Holds back messages of one shard key that are given back, in the order of writing: each comes before what was written after
-- it. The caller writes down what is added, `save_added`.
local function hold_returned(q, shard_key, items)
  local run, numbers, group, rest = run_prefix(shard_key), {}, {}, nil
  for at, item in ipairs(items) do numbers[at] = string.format('%.0f', item.number) end
  local is_free = is_gap(q, run, numbers[1], numbers[#numbers])
  for at, item in ipairs(items) do
    local number, mark = numbers[at], item.is_known and '!:' or ':'
    local its_rest = item.shard .. ':' .. item.place .. mark .. string.format('%.0f', item.ms)
    if group[1] and (its_rest ~= rest or #number ~= #group[1] or #group == MOST_RETURNED) then
      hold_group(q, run, group, rest, is_free)
      group = {}
    end
    group[#group + 1], rest = number, its_rest
  end
  hold_group(q, run, group, rest, is_free)
  local account = find_account(q, shard_key)
  if q.has_parents then count_child(q, account, shard_key, #items, 0) end
  count_messages(q, account, 0, #items)
end

-- Finds the next shard key that has something in the overflow, from a place on. Returns it and the place behind its run, or nil.
local function next_run(q, from)
  local member = redis.call('ZRANGEBYLEX', q.overflow, from, '(t', 'LIMIT', 0, 1)[1]
  if not member then return nil end
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local shard_key = string.sub(rest, 1, size)
  return shard_key, '(' .. size .. ':' .. shard_key .. ';'
end

-- Finds the member that holds one message of a shard key. Returns it, its numbers, what else it says, and which of the numbers is
-- the message's; or nil if the message is not held.
local function find_held(q, shard_key, place, number)
  local member, numbers, rest = find_member(q, run_prefix(shard_key), number)
  if not member or string.match(rest, ':(%w+)!?:%d+$') ~= place then return nil end
  for at, each in ipairs(numbers) do
    if each == number then return member, numbers, rest, at end
  end
  return nil
end

-- Removes one message, wherever it stands in the overflow of its shard key. Returns whether it was there.
local function remove_held(q, shard_key, place, number)
  local member, left, rest, at = find_held(q, shard_key, place, number)
  if not member then return false end
  table.remove(left, at)
  redis.call('ZREM', q.overflow, member)
  if #left > 0 then
    redis.call('ZADD', q.overflow, 0, run_prefix(shard_key) .. mark_numbers(table.concat(left, ',')) .. ':' .. rest)
  end
  local account = find_account(q, shard_key)
  count_messages(q, account, 0, account.held > 0 and -1 or 0)
  if q.has_parents then count_child(q, account, shard_key, -1, 0) end
  return true
end
