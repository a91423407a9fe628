-- Calls and keys that must not count twice. A producer's last call is a field of the state, "end|number|what was
-- stored". The hash `dedup` has 'k:' and a dedup key as "end|id", 'g:' the same of a gateway's ids, 'o:' and the
-- partition of a bulk write as "end|first message not stored|batch|mark", and 'u:' a unique key, 'l:' its
-- last lease (unique.lua).
local MAX_SEQUENCES = 100000 -- newcomers beyond them write without one

-- Forgets a bounded number of an index whose end has come, which lie in this hash.
function Producers.forget_ended(q, index, hash, most, keep)
  local ended = call('ZRANGEBYSCORE', index, '-inf', q.now, 'LIMIT', 0, most)
  -- `keep` may move some to a later end: these are looked at again then.
  if #ended > 0 and keep then ended = keep(q, ended) end
  if #ended == 0 then return end
  call('HDEL', hash, unpack(ended)) -- at most 2,008: a write with unique keys
  call('ZREM', index, unpack(ended)) -- at most 2,008: the same
end

local function has_room_in(q, index, hash, most)
  Producers.forget_ended(q, index, hash, 64)
  return call('ZCARD', index) <= most -- the sentinel is one
end

-- Looks up whether a producer's call was done before. It has this number (a text), and may be repeated for `keep` ms.
-- A producer is remembered for twice as long, and touches its index only when half of that is gone. Returns an answer
-- if it was done or may not be, else nil: then `note_call` and `save_producer` remember it.
function Producers.check_call(q, sequence, keep, text)
  local ends, last, from = match(text or '', '^(%d+)|(%d+)|()')
  -- Only the last call of a sequence is known: one call of it is under way at a time (`Sequences` in
  -- shardq/ops/queue/sequences.py).
  if last == sequence then return {'OK', sub(text, from)} end
  if ends and last + 0 > sequence + 0 then return {'STALE'} end
  -- Mostly the sequence is remembered for long enough: then a write touches no index for it.
  q.producer_number, q.producer_ends = sequence, ends
  if ends and ends - q.now >= keep then return nil end
  local index = q.keys[PRODUCERS]
  Arguments.check_key(q.keys, PRODUCERS)
  if not ends and not has_room_in(q, index, q.keys[META], MAX_SEQUENCES) then return {'FULL', 'max_producers'} end
  -- A look, before the effects: `save_producer` will write there.
  if ends then call('ZCARD', index) end
  q.producer_moves, q.producer_is_known, q.producer_ends = true, ends ~= nil, spell(q.now + 2 * keep)
end

local MOST_DIGITS = 15 -- so it is below 2^53
local LONGEST = 7200000 -- ms for which a call may be repeated

-- Reads the number of a call, "number|ms for which it may be repeated field": the field of the state that remembers the
-- last call of its producer. Returns field, number and ms; nothing for '-', a call that has none.
function Producers.read_number(text)
  local number, keep, field = match(text, '^(%d+)|(%d+) (p:.+)$')
  if not field then return nil end
  if #number > MOST_DIGITS or #keep > MOST_DIGITS then Arguments.refuse('the number of the call is too large') end
  return field, number, min(keep + 0, LONGEST)
end

-- Notes a call with such a number, after `check_call` let it be done, and what it answers. Before `save_state`.
function Producers.end_call(q, field, answer)
  if not field then return end
  if q.producer_moves then Producers.save_producer(q, field) end
  Producers.note_call(q, field, answer)
end

-- Writes a time that is there already, for a call that was done before: WAIT waits for what its own connection wrote
-- last.
function Producers.touch(q, last) call('HSET', q.keys[META], 'last', last) end

-- Notes a producer's call, and what was stored, which is the reply to a repetition.
function Producers.note_call(q, producer, stored)
  if not q.producer_ends then return end
  State.put(q, producer, q.producer_ends .. '|' .. q.producer_number .. '|' .. stored)
end

-- Remembers a producer for as long as it was said.
function Producers.save_producer(q, producer)
  local index = q.keys[PRODUCERS]
  call('ZADD', index, q.producer_ends, producer)
  if q.producer_is_known then Producers.forget_ended(q, index, q.keys[META], 4) end
end

-- Says whether bulk offsets may have been lost since the time `began`, while messages stayed: the hash is gone, or
-- younger than that. That of a queue which is no older itself has lost nothing else than the messages. 0 is no time;
-- nor is one that lies ahead, since the clock was wrong then.
function Producers.has_lost_offsets(q, began)
  if began == '0' then return false end
  local since = call('HGET', q.keys[DEDUP], '')
  local created = call('HGET', q.keys[META], 'created')
  -- The hash is gone. If the queue is gone, too, so are its messages, and nothing is lost beside them.
  if not since then return created ~= false end
  local at = tonumber(since) or 0
  return at > began + 0 and at <= q.now and since ~= created
end

-- Looks up how far the partition of a bulk write is. The text "batch|first|next|ms|mark|mark|most|began" says that the
-- call has the messages from `first` up to before `next` of that batch, for how long to remember it, the checksums of
-- all messages of the partition before `first` and before `next` (the marks), how many such partitions there may be,
-- and when the bulk write began. Returns an answer if the call must not be done, else what to remember.
function Producers.check_offset(q, field, text)
  local batch, from, upto, keep, mark_before, last_mark, most, began =
    match(text, '^(%d+)|(%d+)|(%d+)|(%d+)|(%w*)|(%w*)|(%d+)|(%d+)$')
  if not batch or max(batch, from, upto, keep, most, began) > EXACT then Arguments.refuse('the offset is none') end
  Arguments.check_all(q)
  local known = call('HGET', q.keys[DEDUP], field)
  local ends, stored, at_batch, at_mark = match(known or '0|0|0|', '^(%d+)|(%d+)|(%d+)|(%w*)$')
  local offset = at_batch == batch and stored + 0 or 0
  local fits = at_batch + 0 <= batch + 0 and offset == from + 0
  -- The caller begins elsewhere, or the rows before it differ from the stored ones: the reply says where to resume.
  if not fits or offset > 0 and at_mark ~= mark_before then return {'COUNTED', at_batch, stored, at_mark} end
  if not known and Producers.has_lost_offsets(q, began) then return {'FORGOTTEN'} end
  if not known and not has_room_in(q, q.keys[BULK_OFFSETS], q.keys[DEDUP], most + 0) then
    return {'FULL', 'max_bulk_offsets'}
  end
  return nil, {field = field, keep = keep + 0, ends = ends + 0, value = upto .. '|' .. batch .. '|' .. last_mark}
end

function Producers.save_offset(q, offset)
  -- Its end moves only when half of the time is gone, so most calls of a bulk write leave the index alone.
  if offset.ends - q.now < offset.keep / 2 then
    offset.ends = q.now + offset.keep
    call('ZADD', q.keys[BULK_OFFSETS], spell(offset.ends), offset.field)
    Producers.forget_ended(q, q.keys[BULK_OFFSETS], q.keys[DEDUP], 4)
  end
  call('HSET', q.keys[DEDUP], offset.field, spell(offset.ends) .. '|' .. offset.value)
end

-- The owner of a key is its shard key, unless the queue says that all share them. The length in front keeps a shard key
-- and a key apart, whatever bytes they have.
function Producers.scope_key(q, shard_key, key)
  if q.rules.shares_keys then return key end
  return #shard_key .. ':' .. shard_key .. key
end
