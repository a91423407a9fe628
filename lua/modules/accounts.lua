-- The accounts of shard keys in the hash `accounts`: what each of them has in the queue. Where the queue has parents, the
-- account is that of the parent, the part of the shard key before the first '/'. The field 't:' and the name is "shared held[
-- tag due][ +delayed]": undelivered messages in the shared streams; messages held in its overflow; the tag of the last child
-- that was let in, and turns that it is still due; delayed messages. 'f:' and the name has its deliveries in flight, 'w:' its
-- weight. 'sum' is how many accounts have anything undelivered, and how many messages are held in all. Where there is a cap or a
-- limit (lua/modules/limits.lua), it also says how many of the held ones wait for that, and " !n" in an account how many of its own.
--
-- A call loads an account once at most, and saves it once. Where the queue has no rule but the window, an account that has
-- nothing delayed is *plain*: all of it is two numbers, `q.plain[name]`, its messages in the streams, and `q.behind[name]`, those
-- that are held in its overflow (nil if there are none). `q.behind_names` lists the plain accounts that were loaded with any.
-- Most accounts are plain in most calls, and a table for each took longer than all else. A message that counts is marked by
-- its first field, 'K', so that switching the window on or off never miscounts.
--- @use lists

-- Reads the rules of fairness and begins without any account.
local function read_rules(q)
  local window, cap, parents, weighted, max_backlog, cap_number = unpack( -- at most 6: the fields
    redis.call('HMGET', q.meta, 'window', 'max_in_flight', 'parents', 'weighted', 'max_backlog', 'cap_no'))
  q.window, q.cap, q.max_backlog, q.cap_number = tonumber(window or '0'), tonumber(cap or '0'), tonumber(max_backlog or '0'), cap_number
  q.has_parents, q.has_weights = parents == '1', (weighted or '0') ~= '0' and weighted ~= '0+'
  q.has_mark, q.counts_flight, q.withheld = string.find(weighted or '', '+', 1, true), q.cap > 0, 0
  q.has_more = q.has_parents or q.has_weights or q.cap > 0
  q.loaded, q.account_by, q.texts = {}, {}, {}
  q.plain, q.behind, q.behind_names, q.plain_loads = {}, {}, {}, {}
end

-- Returns the name of the account that a shard key belongs to.
local function account_name(q, shard_key)
  return q.has_parents and string.match(shard_key, '^[^/]+') or shard_key
end

-- Adds to an account what only some queues need: parents and weights. A weight may have become less than the turns due.
local function add_turns(q, account, text, weight)
  local tag, due = string.match(text or '', '^%d+ %d+ (%d+) (%d+)')
  account.tag, account.weight = tonumber(tag) or 0, tonumber(weight) or 1
  account.due = math.min(tonumber(due) or 0, account.weight - 1)
  account.children = q.has_parents and {}
end

-- Adds to an account what is in flight, where there is a cap, and how many of its held messages wait for that. What was counted
-- under an earlier cap counts no more, since nobody may have counted it down since.
local function add_flight(q, account, text, flight)
  account.withheld = tonumber(string.match(text or '', ' !(%d+)')) or 0
  local cap_number, count = string.match(flight or '', '^(%d+) (%d+)$')
  local is_present = cap_number == q.cap_number
  account.flight = is_present and tonumber(count) or 0
  account.stored_flight = (not cap_number or is_present) and account.flight
end

-- Opens an account, given its fields. It has eight fields, unless more are needed: a ninth doubles what a table takes, and a
-- call has one account for each of its shard keys. `stream` is for reads: the stream that it was handed a message out of.
local function open_account(q, name, field, text, flight, weight)
  local shared, held, delayed = 0, 0, 0
  if text then
    local rest
    shared, held, rest = string.match(text, '^(%d+) (%d+)()')
    shared, held = tonumber(shared) or 0, tonumber(held) or 0
    if rest and rest <= #text then delayed = tonumber(string.match(text, '%+(%d+)$') or '0') end
  end
  local account = {
    name = name, field = field, stored = text, shared = shared, held = held, delayed = delayed, weight = 1, stream = false,
  }
  if q.has_more then
    if q.has_parents or q.has_weights then add_turns(q, account, text, weight) end
    if q.counts_flight then add_flight(q, account, text, flight) end
  end
  local loaded = q.loaded
  loaded[#loaded + 1], q.account_by[name] = account, account
  return account
end

-- Takes the accounts that are plain out of what was read, and opens the others. `texts` has theirs from the place `at` on, like
-- `fields`.
local function load_plain(q, names, fields, texts, at)
  local plain, behind, waiting, before = q.plain, q.behind, q.behind_names, at - 1
  q.plain_loads[#q.plain_loads + 1] = {names = names, fields = fields, texts = texts, before = before}
  for nth, name in ipairs(names) do
    local text = texts[before + nth]
    if text == '1 0' then
      plain[name] = 1
    elseif not text then
      plain[name] = 0
    else
      local shared, held = string.match(text, '^(%d+) (%d+)$')
      if not shared then
        open_account(q, name, fields[before + nth], text)
      else
        plain[name] = tonumber(shared)
        if held ~= '0' then behind[name], waiting[#waiting + 1] = tonumber(held), name end
      end
    end
  end
end

-- Opens an account that was plain so far in this call, since more is to be said of it than two numbers. What is stored of it is
-- not looked up again, so it is written in any case.
local function open_plain(q, name)
  local account = open_account(q, name, 't:' .. name, nil)
  account.shared, account.held, account.stored = q.plain[name], q.behind[name] or 0, ''
  q.plain[name], q.behind[name] = nil, nil
  return account
end

-- Lists the accounts of these shard keys that were not loaded yet, and the fields to read of them.
local function list_fields(q, shard_keys)
  local names, fields, by, has_parents = {}, {}, q.account_by, q.has_parents
  local has_cap, has_weights = q.counts_flight, q.has_weights
  if not q.sum then fields[1] = 'sum' end
  for _, key in ipairs(shard_keys) do
    local name = has_parents and account_name(q, key) or key
    if by[name] == nil then
      by[name], names[#names + 1], fields[#fields + 1] = false, name, 't:' .. name
      if has_cap then fields[#fields + 1] = 'f:' .. name end
      if has_weights then fields[#fields + 1] = 'w:' .. name end
    end
  end
  return names, fields
end

-- Loads how many shard keys are active, and how many messages are held in overflows, given what is stored. What somebody
-- spoiled by hand counts as nothing, so that it blocks no call.
local function load_sum(q, text)
  q.sum = text or '0 0'
  local active, held, withheld = string.match(q.sum, '^(%d+) (%d+) ?(%d*)$')
  q.active, q.held, q.withheld = tonumber(active) or 0, tonumber(held) or 0, tonumber(withheld) or 0
end

-- Loads the accounts of these shard keys, all in one look, and the sum with the first of them.
local function load_accounts(q, shard_keys)
  local names, fields = list_fields(q, shard_keys)
  if #names == 0 then return end
  local texts, at = redis.call('HMGET', q.accounts, unpack(fields)), 1 -- at most 6,001: three for each of 2,000 keys
  if not q.sum then
    load_sum(q, texts[1])
    at = 2
  end
  if q.window > 0 and not q.has_more then return load_plain(q, names, fields, texts, at) end
  local has_cap, has_weights = q.counts_flight, q.has_weights
  for _, name in ipairs(names) do
    local field, text, flight, weight = fields[at], texts[at], nil, nil
    if has_cap then at, flight = at + 1, texts[at + 1] end
    if has_weights then at, weight = at + 1, texts[at + 1] end
    open_account(q, name, field, text, flight, weight)
    at = at + 1
  end
  if q.has_limits then q.load_limits(q, names) end
end

-- Returns the account that a shard key belongs to.
local function find_account(q, shard_key)
  local name = q.has_parents and account_name(q, shard_key) or shard_key
  local account = q.account_by[name]
  if account then return account end
  if not q.plain[name] then load_accounts(q, {name}) end
  return q.account_by[name] or open_plain(q, name)
end

-- Counts messages that an account has more, or less, in the shared streams and in its overflow.
local function count_messages(q, account, shared, held)
  local shared_before, held_before = account.shared, account.held
  local shared_after, held_after = math.max(0, shared_before + shared), math.max(0, held_before + held)
  account.shared, account.held = shared_after, held_after
  if held ~= 0 then q.held = math.max(0, q.held + held) end
  local before, after = shared_before + held_before, shared_after + held_after
  if before == 0 and after > 0 then
    q.active = q.active + 1
  elseif before > 0 and after == 0 then
    q.active = math.max(0, q.active - 1)
  end
end

-- Counts delayed messages of a shard key. They take no part in fairness before they are due, but memory: `max_backlog` counts
-- them. The hash `shard_keys` has an entry for each, so whoever adds or removes one counts here.
local function count_delayed(q, shard_key, by)
  local account = find_account(q, shard_key)
  account.delayed = math.max(0, account.delayed + by)
end

-- Forgets the shard key of a message that is delayed no more, if it counts, and counts it out.
local function forget_delayed(q, handle)
  local shard_key = redis.call('HGET', q.shard_keys, handle)
  if not shard_key then return end
  redis.call('HDEL', q.shard_keys, handle)
  count_delayed(q, shard_key, -1)
end

-- Returns what an account's field should say, false if it should not be there.
local function spell_account(q, account)
  local shared, held = account.shared, account.held
  if shared + held + account.delayed == 0 then return false end
  local withheld = account.withheld
  local texts = q.texts
  local text = (texts[shared] or spell_number(q, shared)) .. ' ' .. (texts[held] or spell_number(q, held))
  if account.tag and (account.tag > 0 or account.due > 0) then
    text = text .. string.format(' %.0f %d', account.tag, account.due)
  end
  if withheld and withheld > 0 then text = text .. ' !' .. spell_number(q, withheld) end
  return account.delayed > 0 and text .. ' +' .. spell_number(q, account.delayed) or text
end

-- Notes that a field is to be set or removed, if it is stored otherwise. `changes` is {set = {...}, unset = {...}}.
local function note_field(changes, field, stored, text)
  local set, unset = changes.set, changes.unset
  if text and text ~= stored then set[#set + 1], set[#set + 2] = field, text end
  if stored and not text then unset[#unset + 1] = field end
end

-- Notes what the children of an account have now.
local function note_children(account, changes)
  for key, child in pairs(account.children) do
    note_field(changes, 'c:' .. key, child.stored, child.held > 0 and string.format('%d %.0f', child.held, child.tag))
  end
end

-- Notes what the plain accounts have now, but for those that were opened since.
local function note_plains(q, changes)
  local plain, behind, spelled = q.plain, q.behind, q.texts
  for _, load in ipairs(q.plain_loads) do
    local fields, texts, before = load.fields, load.texts, load.before
    for nth, name in ipairs(load.names) do
      local shared, at = plain[name], before + nth
      if shared then
        local held = behind[name] or 0
        local text = shared == 1 and held == 0 and '1 0' or shared + held > 0
          and (spelled[shared] or spell_number(q, shared)) .. ' ' .. (spelled[held] or spell_number(q, held))
        if text ~= texts[at] then note_field(changes, fields[at], texts[at], text) end
      end
    end
  end
end

-- Counts how many of the held messages wait for a cap or a limit, and not for their turn.
local function count_withheld(q)
  for _, account in ipairs(q.loaded) do
    local held, allowance = account.held, q.has_limits and q.find_allowance(q, account) or q.cap * account.weight - account.flight
    local withheld = held - math.min(held, math.max(0, allowance - account.shared))
    q.withheld = math.max(0, q.withheld + withheld - account.withheld)
    account.withheld = withheld
  end
end

-- Writes down what the accounts say now.
local function save_accounts(q)
  local changes = {set = {}, unset = {}}
  note_plains(q, changes)
  if q.counts_flight then count_withheld(q) end
  if q.has_limits then q.save_limits(q, changes) end
  for _, account in ipairs(q.loaded) do
    local text = spell_account(q, account)
    if text ~= account.stored then note_field(changes, account.field, account.stored, text) end
    if account.flight ~= account.stored_flight then
      note_field(changes, 'f:' .. account.name, true, account.flight > 0 and q.cap_number .. ' ' .. account.flight)
    end
    if account.children then note_children(account, changes) end
  end
  local set, unset, sum = changes.set, changes.unset, q.sum and q.active .. ' ' .. q.held
  if sum and q.counts_flight and q.withheld > 0 then sum = sum .. ' ' .. q.withheld end
  if sum and sum ~= q.sum then set[#set + 1], set[#set + 2] = 'sum', sum end
  act_in_parts(set, function(from, upto) redis.call('HSET', q.accounts, unpack(set, from, upto)) end)
  act_in_parts(unset, function(from, upto) redis.call('HDEL', q.accounts, unpack(unset, from, upto)) end)
end

-- Counts that a delivery of a shard key is over, where there is a cap of what is in flight.
local function release_delivery(q, shard_key)
  if not q.counts_flight then return end
  local account = find_account(q, shard_key)
  account.flight = math.max(0, account.flight - 1)
end
