-- What is known of messages that were given back, delayed or redriven. The hash `attempts` has it by handle, as
-- "deliveries@since|streams|last error": how often the message was delivered, since when it has been deliverable (ms), and the
-- streams that it may go to. A message of which nothing is known was never delivered, or is being delivered for the first time.

-- This mark before the streams says that the message was rejected, and waits for room among the dead letters.
local REJECTED = '-'

-- Returns what to store of a message. `since` is a time in ms.
local function spell_attempts(deliveries, shard, last_error, since)
  return deliveries .. '@' .. string.format('%.0f', math.max(0, since)) .. '|' .. shard .. '|' .. last_error
end

-- Reads what is stored of a message: deliveries, the streams that it may go to, the last error, whether it was rejected, and
-- since when it has been deliverable, as text ('' if that is not known). The text is false if nothing is stored.
local function parse_attempts(text)
  if not text then return 0, '', '', false, '' end
  local deliveries, since, mark, shard, last_error = string.match(text, '^(%d+)@?(%d*)|(%-?)([%d,]*)|(.*)$')
  return tonumber(deliveries), shard, last_error, mark == REJECTED, since
end

-- Stores what is known of messages that are given back, in one call. Each item says since when it is deliverable again. Returns
-- the texts by handle.
local function save_attempts(q, items)
  local fields, texts = {}, {}
  if #items == 0 then return texts end
  for at, item in ipairs(items) do
    local text = spell_attempts(item.deliveries, item.shard, item.last_error, item.since)
    fields[2 * at - 1], fields[2 * at], item.is_known = item.handle, text, true
    texts[item.handle] = text
  end
  redis.call('HSET', q.attempts, unpack(fields)) -- at most 500: two for each message of a chunk
  return texts
end

-- Adds to messages whose leases are over what is stored of them: the last error, and the streams that they may go to.
local function load_attempts(q, items)
  local handles = {}
  for at, item in ipairs(items) do handles[at] = item.handle end
  for at, text in ipairs(redis.call('HMGET', q.attempts, unpack(handles))) do -- at most 250: a sweep, or a chunk
    if text then
      local item, _, shard, last_error = items[at], parse_attempts(text)
      item.is_known, item.last_error = true, last_error
      if shard ~= '' then item.shard = shard end
    end
  end
end
