-- What must not be stored twice. The hash `dedup` has these kinds of fields, each with its end, the time in ms until when it
-- is remembered: 'k:' and a dedup key is "end|id", and so is 'g:' and the id that a gateway's client gave a message; 'p:'
-- and a producer's sequence is "end|number|what was stored"; 'o:' and the partition of a bulk write is
-- "end|first message not stored|batch|mark". (Unique keys, lua/modules/unique.lua, stand there as well, and 'r:' with the
-- nonce of a call that replaced a message.) Producers and bulk writes have an index by end of their own, and so a count
-- of their own: they take no room of keys, nor keys of them.

-- So many sequences are remembered: each client has one for each of its threads. Newcomers beyond them write without one (see
-- shardq/ops/write.py).
local MAX_SEQUENCES = 100000

-- Returns which of these fields of `dedup` may be forgotten: not the unique keys of messages that still exist. At those somebody
-- looks again when they are twice as old.
local function keep_unique(q, fields)
  local ended = {}
  for _, field in ipairs(fields) do
    local entry_id = string.sub(field, 1, 2) == 'u:' and string.match(redis.call('HGET', q.dedup, field) or '', '^%S+')
    if entry_id and #redis.call('XRANGE', q.bodies, entry_id, entry_id) > 0 then
      local age = q.now - string.match(entry_id, '^%d+')
      redis.call('ZADD', q.dedup_index, string.format('%.0f', q.now + math.max(60000, age)), field)
    else
      ended[#ended + 1] = field
    end
  end
  return ended
end

-- Forgets at most so many of an index whose end has come.
local function forget_ended(q, index, most)
  local ended = redis.call('ZRANGEBYSCORE', index, '-inf', q.now, 'LIMIT', 0, most)
  if #ended == 0 then return end
  if index == q.dedup_index then ended = keep_unique(q, ended) end
  if #ended == 0 then return end
  redis.call('HDEL', q.dedup, unpack(ended)) -- at most 1,004: a write
  redis.call('ZREM', index, unpack(ended)) -- at most 1,004
end

-- Says whether one more may be remembered. What has not ended is never forgotten to make room.
local function has_room(q, index, most)
  forget_ended(q, index, 64)
  return redis.call('ZCARD', index) <= most -- the sentinel is one
end

-- Looks up whether a producer's call was done before. The call is number `number` of its sequence, and may be repeated for
-- `keep` ms. A sequence is remembered for twice as long, and touches its index only when half of that is gone; so at least
-- `keep` ms are left of its memory at any time. Returns what is to be remembered of the call, or what to answer instead.
local function check_sequence(q, field, number, keep)
  local progress = {field = field, index = q.producers, window = 2 * keep, ends = 0, value = string.format('%.0f|', number)}
  local text = redis.call('HGET', q.dedup, field)
  if not text then
    if not has_room(q, q.producers, MAX_SEQUENCES) then return nil, {'FULL', 'max_producers'} end
    return progress
  end
  local ends, last, rest = string.match(text, '^(%d+)|(%d+)|()')
  if tonumber(last) == number then return nil, {'OK', string.sub(text, rest)} end
  if tonumber(last) > number then return nil, {'STALE'} end
  progress.ends = tonumber(ends)
  return progress
end

-- Says whether bulk offsets may have been lost since the time `began`, while messages stayed: the hash is gone, or younger than
-- that. That of a queue which is gone, too, or no older itself has lost nothing else than the messages. 0 is no time; nor is one
-- that lies ahead, since the clock was wrong then.
local function has_lost_offsets(q, began)
  if began == '0' then return false end
  local since, created = redis.call('HGET', q.dedup, ''), redis.call('HGET', q.meta, 'created')
  if not since then return created ~= false end
  local at = tonumber(since) or 0
  return at > tonumber(began) and at <= q.now and since ~= created
end

-- Looks up how far the partition of a bulk write is. The text "batch|first|next|ms|mark|mark|most|began" says that the call has
-- the messages from `first` up to before `next` of that batch, for how long to remember it, the checksums of all messages of
-- the partition before `first` and before `next` (the marks), how many such partitions there may be, and when the bulk write
-- began. A call is refused if its messages were stored before, if something before them was not stored, or if the messages that
-- were stored are not those before `first`. The answer then says how far the batch is. It is also refused if nothing is known of
-- its partition, and that may have been lost since the write began.
local function check_offset(q, field, text)
  local batch, from, upto, keep, mark_before, last_mark, most, began =
    string.match(text, '^(%d+)|(%d+)|(%d+)|(%d+)|(%w*)|(%w*)|(%d+)|(%d+)$')
  local known = redis.call('HGET', q.dedup, field)
  local ends, stored, at_batch, at_mark = string.match(known or '0|0|0|', '^(%d+)|(%d+)|(%d+)|(%w*)$')
  local offset = at_batch == batch and tonumber(stored) or 0
  local fits = tonumber(at_batch) <= tonumber(batch) and offset == tonumber(from)
  if not fits or offset > 0 and at_mark ~= mark_before then return nil, {'COUNTED', at_batch, stored, at_mark} end
  if not known and has_lost_offsets(q, began) then return nil, {'FORGOTTEN'} end
  if not known and not has_room(q, q.bulk_offsets, tonumber(most)) then return nil, {'FULL', 'max_bulk_offsets'} end
  return {
    field = field, index = q.bulk_offsets, window = tonumber(keep), ends = tonumber(ends),
    value = upto .. '|' .. batch .. '|' .. last_mark, is_offset = true,
  }
end

-- Says whether the progress of a producer has to be moved in its index: when half of its window is gone.
local function is_fading(q, progress)
  return progress.ends - q.now < progress.window / 2
end

-- Remembers what a producer's call has stored.
local function save_progress(q, progress, stored)
  if is_fading(q, progress) then
    progress.ends = q.now + progress.window
    redis.call('ZADD', progress.index, progress.ends, progress.field)
    forget_ended(q, progress.index, 4)
  end
  local value = progress.is_offset and progress.value or progress.value .. stored
  redis.call('HSET', q.dedup, progress.field, string.format('%.0f|', progress.ends) .. value)
end

-- Returns the id of the message that was written with a dedup key, nil if none is remembered. `scope_keys` has spelled it.
local function find_duplicate(q, key)
  local text = redis.call('HGET', q.dedup, key)
  local ends, id = string.match(text or '0|', '^(%d+)|(.*)$')
  if tonumber(ends) > q.now then return id end
end

-- Remembers a dedup key for as long as the queue says.
local function save_dedup_key(q, key, id)
  local ends = q.now + q.dedup_window
  redis.call('HSET', q.dedup, key, string.format('%.0f|%s', ends, id))
  redis.call('ZADD', q.dedup_index, ends, key)
end

-- Finds the messages of a call that repeat one that was written before: they take no room. Returns them by their index.
local function find_repeated(q, options)
  local repeated = {}
  for i, option in pairs(options) do
    if option.dedup_key ~= '' and find_duplicate(q, option.dedup_key) then repeated[i] = true end
  end
  return repeated
end
