-- What a stream has undelivered, in the order in which reads of one message deliver it: what waits in its redelivery queue beside
-- what is new. A point in this order is "position:passed:id": where to go on in the redelivery queue, how many were passed that
-- stand at that position, and the id of the last new message that was passed, '' for none.
--- @use messages, redelivery, streams

-- Counts the bytes of a message that was looked at. After `q.most_bytes` no more are looked at in this call.
local function count_bytes(q, fields)
  for _, value in ipairs(fields) do q.bytes = q.bytes + #value end
end

-- Reads new messages of a stream after an id, at most so many: few at first, and then as many as are good for the server, given
-- how large these were. Returns them, and whether these are all.
local function read_new(q, key, after, most)
  local found, asked = {}, math.min(most, 4)
  while asked > 0 and q.bytes < q.most_bytes do
    local before, entries = q.bytes, redis.call('XRANGE', key, '(' .. after, '+', 'COUNT', asked)
    for _, entry in ipairs(entries) do
      count_bytes(q, entry[2])
      found[#found + 1], after = entry, entry[1]
    end
    if #entries < asked then return found, true end
    local fitting = math.floor((q.most_bytes - q.bytes) * asked / math.max(1, q.bytes - before))
    asked = math.min(most - #found, math.max(1, fitting))
  end
  return found, false
end

-- Merges the redelivery queue of a stream, {handle, score, ...}, with its new messages, at most so many. In a fair queue they are
-- delivered by number, in any other all of the redelivery queue comes first. Of each there is {handle, entry, point behind it},
-- without an entry if it comes out of the redelivery queue. Returns them and the last point; it ends early where what comes next
-- is not known, since not all that is new was read.
local function merge_undelivered(q, list, most)
  local items, at, nth, position, passed, id = {}, 1, 1, list.position, list.passed, list.id
  while #items < most do
    local handle, entry = list.queue[at], list.new[nth]
    local place = handle and list.queue[at + 1] - list.first
    if not (handle or entry) or not entry and q.is_fair and not list.is_all_new then break end
    local is_first = handle and (not entry or not q.is_fair or place < tonumber(string.match(entry[1], '%d+$')))
    if is_first then
      passed, position, at = place == position and passed + 1 or 1, place, at + 2
    else
      handle, id, nth = list.number .. ':' .. entry[1], entry[1], nth + 1
    end
    items[#items + 1] = {handle, not is_first and entry, string.format('%.0f:%d:%s', position, passed, id)}
  end
  local is_over = at > #list.queue and #list.queue < 2 * list.asked and nth > #list.new and list.is_all_new
  return items, is_over
end

-- Lists what a stream has undelivered after a point, at most so many. Returns the messages, and whether these are all.
local function list_undelivered(q, number, key, point, most)
  local position, passed, id = string.match(point, '^(%d+):(%d+):([%d-]*)$')
  local first = number * POSITIONS
  local list = {number = number, first = first, position = tonumber(position), passed = tonumber(passed), id = id, asked = most}
  list.queue = redis.call('ZRANGEBYSCORE', q.redelivery, string.format('%.0f', first + position),
    string.format('(%.0f', first + POSITIONS), 'WITHSCORES', 'LIMIT', passed, most)
  list.new, list.is_all_new = {}, true
  if number ~= LEGACY then
    local is_old = id == '' or is_behind_cursor(q, number, id)
    local after = is_old and redis.call('HGET', q.lens, 'h' .. number) or id
    list.new, list.is_all_new = read_new(q, key, after ~= '' and after or '0-0', most)
  end
  return merge_undelivered(q, list, most)
end

-- Reads the bodies of those that come out of a redelivery queue, and what is known of them. Returns the texts by place in the list.
local function load_returned(q, key, items)
  local handles, places, texts = {}, {}, {}
  for at, item in ipairs(items) do
    if not item[2] then
      local place, id = split_handle(item[1])
      local lies_in = place == 'd' and q.bodies or key
      item[2] = redis.call('XRANGE', lies_in, id, id)[1]
      handles[#handles + 1], places[#places + 1] = item[1], at
    end
  end
  local known = #handles > 0 and redis.call('HMGET', q.attempts, unpack(handles)) or {} -- at most 100: a call
  for nth, at in ipairs(places) do texts[at] = known[nth] end
  return texts
end

-- Returns rows of what was listed of a stream: {how many stand before it, point behind it, handle, what is known of it, fields}.
-- It leaves out what is gone, and of a shard key ('' for all) what is another's.
local function spell_rows(q, key, items)
  local rows, texts = {}, load_returned(q, key, items)
  for at, item in ipairs(items) do
    local fields = item[2] and item[2][2]
    local is_ours = fields and (fields[1] == 'k' or fields[1] == 'K')
    if fields and (q.shard_key == '' or is_ours and fields[2] == q.shard_key) then
      rows[#rows + 1] = {at - 1, item[3], item[1], texts[at] or '', q.has_payloads and fields or strip_payload(fields)}
    end
  end
  return rows
end
