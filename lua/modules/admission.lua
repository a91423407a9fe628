-- The common case of a single read beside floods: the next message was let in out of an overflow, or its shard key holds
-- something back, of which the next message is let in now if there is room.
--- @use schedule, redelivery

-- Finds the next message of the stream. What was let in waits in the redelivery queue, and has its place among the new messages.
-- Returns the entry, and the handle of one that was let in; nothing if more has to be known.
local function find_next_entry(read)
  local first, last, left = read.turn * POSITIONS, read.turn * POSITIONS + POSITIONS - 1, read.left
  local queue = read.has_redeliveries
    and redis.call('ZRANGEBYSCORE', read.redelivery, first, last, 'WITHSCORES', 'LIMIT', 0, 1) or {}
  local let_in, entries, entry = queue[1], nil, nil
  if left > 0 and (not let_in or left > 1 and left > redis.call('ZCOUNT', read.redelivery, first, last)) then
    entries = redis.call('XRANGE', read.key, '(' .. (read.cursor or '0-0'), '+', 'COUNT', left > 1 and 1 or 2)
    entry = #entries == 1 and entries[1]
  end
  if left <= 0 or not let_in or entry and queue[2] - first >= tonumber(string.match(entry[1], '%-(%d+)$')) then return entry, nil end
  local id = string.match(let_in, '^d:(.*)$')
  entry = id and not redis.call('HGET', read.attempts, let_in) and redis.call('XRANGE', read.bodies, id, id)[1]
  return entry and entry[2][1] == 'K' and entry, let_in
end

-- Returns the stream that a message of this shard goes to, and its length: this read's stream if that is empty now, else the
-- shortest of the shard. Nothing if the queue has fewer streams than before.
local function choose_target(read, shard, streams)
  local to, length, numbers = nil, 9e15, {}
  if read.left == 1 and string.find(',' .. shard .. ',', ',' .. read.turn .. ',', 1, true) then
    to, length = read.turn, 0
  else
    for each in string.gmatch(shard, '%d+') do numbers[#numbers + 1] = each end
    local lengths = redis.call('HMGET', read.lens, unpack(numbers)) -- at most 4,096: a shard
    for at, each in ipairs(numbers) do
      local its_length = each == read.turn and read.left - 1 or tonumber(lengths[at] or '0')
      if its_length < length then to, length = each, its_length end
      if length == 0 then break end
      if tonumber(each) >= tonumber(streams) then return nil end
    end
  end
  if to and tonumber(to) < tonumber(streams) then return to, length end
  return nil
end

-- Finds the next message of a shard key that holds something back, if there is room for one: {} if there is no room. Nothing if
-- it takes more than is done here.
local function find_admitted(read, shard_key, shared, behind, active)
  local window, n, gone, skipped, waiting, streams = unpack( -- at most 6: the fields
    redis.call('HMGET', read.meta, 'window', 'n', 'gone', 'skipped', 'waiting', 'streams'))
  local places, run = tonumber(window or '0'), #shard_key .. ':' .. shard_key
  if active - 1 < 8 then places = math.max(places, math.floor(8 / active)) end
  local room = math.min(places - shared + 1, behind)
  if window == '0' or room > 1 or tonumber(waiting) > read.now then return nil end
  if room < 1 then return {} end
  local member = redis.call('ZRANGEBYLEX', read.overflow, '[' .. run .. ':', '(' .. run .. ';', 'LIMIT', 0, 1)[1]
  local number, more, shard, ms = string.match(member or '', '^(%d+),?([%d,]*):([%d,]+):d:(%d+)$', #run + 3)
  local to, length = nil, nil
  if shard then to, length = choose_target(read, shard, streams) end
  return to and {
    member = member, to = to, length = length, handle = 'd:' .. ms .. '-' .. number, n = n + 1, gone = (gone or 0) + 1,
    skipped = (skipped or 0) + 1, start = run .. ':', more = more, rest = ':' .. shard .. ':d:' .. ms,
  }
end

-- Lets a message in: it leaves the overflow and gets behind all that came so far. Its position is a number that no message has.
local function admit_one(read, admitted)
  local to, more = admitted.to, admitted.more
  redis.call('ZREM', read.overflow, admitted.member)
  if more ~= '' then
    local letter = string.char(64 + #string.match(more, '^%d+'))
    redis.call('ZADD', read.overflow, 0, admitted.start .. letter .. more .. admitted.rest)
  end
  redis.call('ZADD', read.redelivery, to * POSITIONS + admitted.n, admitted.handle)
  if admitted.length == 0 then redis.call('ZADD', read.ready, to, to) end
  if to == read.turn then read.left = read.left + 1 else redis.call('HSET', read.lens, to, admitted.length + 1) end
end

-- Writes down that one message of the shard key left the streams, and that one was `admitted` into them.
local function save_account(read, field, shared, behind, active, held, admitted)
  if admitted then
    redis.call('HSET', read.accounts, field, shared .. ' ' .. behind - 1, 'sum', active .. ' ' .. math.max(0, held - 1))
  elseif shared == '1' and behind == '0' then
    redis.call('HDEL', read.accounts, field)
    redis.call('HSET', read.accounts, 'sum', math.max(0, active - 1) .. ' ' .. held)
  else
    redis.call('HSET', read.accounts, field, shared - 1 .. ' ' .. behind)
  end
end

-- The lease lies in the bucket of its shard key, which is due when it ends, if not before.
local function save_lease(read, token, shard_key)
  local bucket = tonumber(string.sub(redis.sha1hex(shard_key), 1, 8), 16) % 2045 + 1
  redis.call('ZADD', read.due, 'LT', read.ends, 'l' .. bucket)
  redis.call('ZADD', read.leases, bucket * SPAN + read.ends, token)
end

-- Writes down how many messages the stream has left, its cursor if that moved to `id`, and where the next read begins.
local function save_turn(read, id, admitted)
  local turn, offset = read.turn, (read.turn + 1) % 4097
  if id then
    redis.call('HSET', read.lens, turn, read.left, 'h' .. turn, id)
  elseif not admitted or admitted.to ~= turn then
    redis.call('HSET', read.lens, turn, read.left)
  end
  if admitted then
    redis.call('HSET', read.meta, 'offset', offset, 'n', admitted.n, 'gone', admitted.gone, 'skipped', admitted.skipped)
  else
    redis.call('HSET', read.meta, 'offset', offset)
  end
  if read.left == 0 then redis.call('ZREM', read.ready, turn) end
end

-- Delivers one message of the stream. Returns what the reply has of new messages and of others; nothing, and nothing has
-- changed, if this is not the common case.
local function read_beside_overflow(read)
  local entry, let_in = find_next_entry(read)
  if not entry or entry[2][5] == 'm' or entry[2][1] ~= 'K' then return nil end
  local id, fields, shard_key, turn, admitted = entry[1], entry[2], entry[2][2], read.turn, {}
  local field = 't:' .. shard_key
  local sum, account = unpack(redis.call('HMGET', read.accounts, 'sum', field)) -- at most 2: the fields
  local active, held = string.match(sum or '', '^(%d+) (%d+)$')
  local shared, behind = string.match(account or '', '^([1-9]%d*) (%d+)$')
  if not (active and shared) then return nil end
  if behind ~= '0' then admitted = find_admitted(read, shard_key, shared, behind, active) end
  if not admitted then return nil end
  if not admitted.to then admitted = nil end

  save_lease(read, (let_in or turn .. ':' .. id) .. ':1:' .. read.holder .. ':' .. (let_in and turn or '') .. ':' .. shard_key, shard_key)
  read.left = read.left - 1
  save_account(read, field, shared, behind, active, held, admitted)
  if let_in then redis.call('ZREM', read.redelivery, let_in) end
  if admitted then admit_one(read, admitted) end
  save_turn(read, not let_in and id, admitted)
  if let_in then return {}, {{let_in .. ':1:' .. turn, '', fields, ''}} end
  return {turn, {entry}}, {}
end
