-- Withholding: a message that lies in a stream, and that limits do not allow any more since they were changed, is held back in
-- the overflow of its shard key when a read comes across it. There it is in nobody's way.
--- @use accounts, attempts, bodies, fairness, limits, messages, overflow

-- Counts a message that left the streams at once, since the limits say of each one whether it may be delivered.
local function count_at_once(q, shard_key, is_delivered, number)
  count_departure(q, find_account(q, shard_key), is_delivered, number or nil)
end

-- Holds messages back, those of each shard key in the order of writing.
local function hold_back(q, lists)
  for shard_key, items in pairs(lists) do
    table.sort(items, function(one, other) return one.number < other.number end)
    count_messages(q, find_account(q, shard_key), -#items, 0)
    hold_returned(q, shard_key, items)
  end
  save_added(q)
end

-- Notes that a message is to be held back.
local function note_held_back(lists, shard_key, place, id, shard, is_known)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  local list = lists[shard_key] or {}
  lists[shard_key], list[#list + 1] = list, {
    handle = place .. ':' .. id, id = id, place = place, shard = shard, is_known = is_known, ms = tonumber(ms), number = tonumber(number),
    shard_key = shard_key,
  }
end

-- Says whether one more message of a shard key may be delivered, beside those that this call chose before.
local function may_leave(q, shard_key, chosen)
  local account = find_account(q, shard_key)
  local before = chosen[account] or 0
  chosen[account] = before + 1
  return find_allowance(q, account) > before
end

-- Returns those of a stream's new entries that may be delivered, and holds the others back.
local function withhold_new(q, number, entries)
  local shard_keys, kept, lists, chosen = {}, {}, {}, {}
  for _, entry in ipairs(entries) do
    if entry[2][1] == 'K' then shard_keys[#shard_keys + 1] = entry[2][2] end
  end
  load_accounts(q, shard_keys)
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    if fields[1] ~= 'K' or may_leave(q, fields[2], chosen) then
      kept[#kept + 1] = entry
    else
      note_held_back(lists, fields[2], number, entry[1], '', false)
    end
  end
  if #kept < #entries then hold_back(q, lists) end
  return kept
end

-- Returns the body of a message in the redelivery queue, which is not read again in this call; nil if it is gone.
local function read_body(q, handle)
  local place, id = split_handle(handle)
  local name = place == 'd' and id or handle
  if not q.entries[name] then
    local key = place == 'd' and q.bodies or q.streams[place]
    q.entries[name] = redis.call('XRANGE', key, id, id)[1]
  end
  return q.entries[name], place, id
end

-- Returns those messages out of redelivery queues that may be delivered, and the streams that they waited in; holds the others
-- back.
local function withhold_taken(q, handles, from)
  local kept, kept_from, lists, chosen, has_any = {}, {}, {}, {}, false
  load_bodies(q, handles)
  for at, handle in ipairs(handles) do
    local entry, place, id = read_body(q, handle)
    local shard_key = place ~= 'l' and entry and entry[2][1] == 'K' and entry[2][2]
    if not shard_key or may_leave(q, shard_key, chosen) then
      kept[#kept + 1], kept_from[#kept_from + 1] = handle, from[at]
    else
      local text = redis.call('HGET', q.attempts, handle)
      local _, shard = parse_attempts(text)
      if shard == '' and place == 'd' then shard = from[at] end
      note_held_back(lists, shard_key, place, id, shard, text and true)
      has_any = true
    end
  end
  if has_any then hold_back(q, lists) end
  return kept, kept_from
end

-- Begins a read where there are limits.
local function begin_withholding(q)
  q.count_at_once, q.withhold_new, q.withhold_taken = count_at_once, withhold_new, withhold_taken
end
