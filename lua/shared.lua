-- Verbs for things that do not change with messages: shards that were assigned, the list of queues, expiry, traces that
-- producers left, the journal, the possessions of a streaming query of Spark.

-- Looks at what stands behind the head: shard keys that lose their shards, and such that get one.
local function check_shards(words)
  local first = 6 + words[5]
  if (#words - first) % 2 ~= 1 or first > #words + 1 then Arguments.refuse('a shard key has no shard') end
  for at = 6, first - 1 do Arguments.check({words[at]}, {'key'}) end
  for at = first, #words, 2 do Arguments.check({words[at], words[at + 1]}, {'key', 'shard'}) end
end

-- @verb assign: give shard keys their shards, or take them back, all or none. The epoch moves, so that every writer
-- learns.
-- KEYS[1] meta: epoch, epoch and reach of the assignment
-- KEYS[2] assigned: shards by shard key
-- ARGV[1] epoch: for which the shards were chosen
-- ARGV[2] following: the epoch after it
-- ARGV[3] rule: "max_overlap|streams per shard", '' when no shard is left
-- ARGV[4] reach: one above the highest stream of all shards
-- ARGV[5] removed: how many shard keys lose theirs
-- ARGV[6..] rest: these shard keys, then shard key, shard, ... for each that gets one
-- Reply: 'OK' | 'NOQUEUE' | 'EPOCH'
function verbs.assign(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'assigned'})
  Arguments.check(ARGV, {'epoch', 'following', 'rule', 'streams', 'assigned'}, {'any'}, 30000)
  check_shards(ARGV)
  check_types({KEYS[2]}, {}, {})
  local answer = Queue.check_epoch(KEYS[1], ARGV[1], ARGV[2])
  if answer then return answer end
  call('HSET', KEYS[2], '', ARGV[3])
  local first = 6 + ARGV[5]
  for at = 6, first - 1 do call('HDEL', KEYS[2], ARGV[at]) end
  for at = first, #ARGV, 2 do call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
  call('HSET', KEYS[1], 'assigned', ARGV[2], 'reach', ARGV[4])
  Rules.set_epoch(KEYS[1], ARGV[2])
  return 'OK'
end

-- @verb assignment | no-writes: which shard keys have which shards.
-- KEYS[1] meta: epoch and reach of the assignment
-- KEYS[2] assigned: shards by shard key
-- Reply: {epoch of the last change or '', reach, {shard key, shard, ..., '', rule}}
function verbs.assignment(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'assigned'})
  local epoch, reach = unpack(call('HMGET', KEYS[1], 'assigned', 'reach')) -- at most 2: the fields
  return {epoch or '', tonumber(reach or 0), call('HGETALL', KEYS[2])}
end

-- @verb register | allow-oom: add a queue to the list of queues, or take it out.
-- KEYS[1] queues: names of queues
-- ARGV[1] verb: '+' | '-'
-- ARGV[2] name: of the queue
-- Reply: 1 if that changed the list, else 0
function verbs.register(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_shared(KEYS)
  Arguments.check(ARGV, {'change', 'queue'})
  if ARGV[1] == '+' then return call('ZADD', KEYS[1], 0, ARGV[2]) end
  return call('ZREM', KEYS[1], ARGV[2])
end

-- @verb queues | no-writes: a page of the list of queues, in the order of their names.
-- KEYS[1] queues: names of queues
-- ARGV[1] after: the name that the page begins behind; '' = the start
-- ARGV[2] most: names
-- Reply: {name, ...}
function verbs.queues(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_shared(KEYS)
  Arguments.check(ARGV, {'queue_or_none', 'count'})
  return call('ZRANGEBYLEX', KEYS[1], ARGV[1] == '' and '-' or '(' .. ARGV[1], '+', 'LIMIT', 0, ARGV[2])
end

-- @verb touch | allow-oom: move the expiry of all of a queue's keys together, so that none outlives another. The queue
-- says by how much: a call that comes late, after the setting was taken away, must not let the queue expire.
-- KEYS[1] meta: where the queue begins
-- KEYS[2..] keys: every other key of the queue
-- Reply: how many keys there are
function verbs.touch(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta'})
  Arguments.check_own(KEYS, 2)
  local ttl = tonumber(call('HGET', KEYS[1], 'ttl') or 0)
  local keys = call('EXISTS', KEYS[1])
  for at = 1, #KEYS do
    if ttl > 0 then keys = keys + call('PEXPIRE', KEYS[at], ttl) else call('PERSIST', KEYS[at]) end
  end
  return keys
end

-- Says whether somebody may yet ask for something of a queue without messages: a result, a call of a schedule, or a
-- write that got no answer, within the last `ms`.
local function is_of_use(KEYS, quiet)
  local now = read_time()
  local last = call('HGET', KEYS[META], 'last')
  return now - match(last, '^%d+') < quiet + 0 or call('ZCOUNT', KEYS[5], now, '(' .. NEVER) > 0
    or call('ZCARD', KEYS[6]) > 1 -- the sentinel is one
end

-- @verb delete | allow-oom: remove a queue with all of its keys, unless it holds other messages than the caller
-- expects. (A queue of the first format counts those that are over: `gone`.)
-- KEYS[1] meta: the state of the queue
-- KEYS[2] dead: dead letters
-- KEYS[3] delayed: messages that are not yet due
-- KEYS[4] leases: tokens by end
-- KEYS[5] result_ends: what is kept of messages, by end
-- KEYS[6] schedule_due: all schedules by their next slots
-- KEYS[7..] rest: all other keys of the queue
-- ARGV[1] epoch: for which the streams were declared
-- ARGV[2] expected: how many messages it holds, dead letters included; '' = however many
-- ARGV[3..] quiet: for how many ms nothing was written to it, and that it keeps no result and no schedule; none =
--           whatever it keeps
-- Reply: {'OK' | 'HELD', how many it holds} | {'NOQUEUE', 0} | {'EPOCH', 0}
function verbs.delete(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'dead', 'delayed', 'leases', 'result-ends', 'schedule-due'})
  Arguments.check_own(KEYS, 7)
  Arguments.check(ARGV, {'epoch', 'number_or_none'}, {'ms'}, 1)
  local epoch, written, adopted, gone, shared, line, odd = unpack( -- at most 7: the fields
    call('HMGET', KEYS[META], 'epoch', 'n', 'adopted', 'gone', 'shared', 'line', 'odd'))
  if not epoch then return {'NOQUEUE', 0} end
  -- With another epoch there may be streams that the caller has not declared: they would stay.
  if epoch ~= ARGV[1] then return {'EPOCH', 0} end
  local indexes = {[DELAYED] = KEYS[3], [LEASES] = KEYS[4]}
  local living
  if gone then
    living = max(0, written + adopted - gone)
  else
    living = State.count_living(indexes, shared, State.read_line(line)[2], State.read_odd(odd))
  end
  local held = living + call('XLEN', KEYS[2])
  if ARGV[2] ~= '' and held ~= ARGV[2] + 0 then return {'HELD', held} end
  if ARGV[3] and is_of_use(KEYS, ARGV[3]) then return {'HELD', held} end
  for _, key in ipairs(KEYS) do call('UNLINK', key) end
  return {'OK', held}
end

-- @verb complete | allow-oom: a bulk write is stored whole, so what was counted of it need not be remembered for as
-- long as was said.
-- KEYS[1] bulk_offsets: offsets of bulk writes by end
-- ARGV[1] keep: for how many more ms at most
-- ARGV[2..] rest: the offsets of the write
-- Reply: 'OK'
function verbs.complete(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'bulk-offsets'})
  Arguments.check(ARGV, {'ms'}, {'bulk_offset'}, 1000)
  local ends = spell(read_time() + ARGV[1])
  for at = 2, #ARGV do call('ZADD', KEYS[1], 'XX', 'LT', ends, ARGV[at]) end
  return 'OK'
end

-- @verb recount | no-writes: how many rows of some partitions of a bulk write are stored, as far as is remembered.
-- KEYS[1] meta: when the queue was created
-- KEYS[2] dedup: bulk offsets, and since when it remembers
-- ARGV[1] began: when the write began, in ms
-- ARGV[2..] rest: the fields of their bulk offsets, at most 1,000
-- Reply: {1 if bulk offsets may have been lost since then while messages stayed, else 0; now; for each field
--        'end|stored|batch|mark' or nil}
function verbs.recount(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'dedup'})
  Arguments.check(ARGV, {'ms'}, {'bulk_offset_or_none'}, 1000)
  local q = new_q{keys = {[META] = KEYS[1], [DEDUP] = KEYS[2]}, now = read_time()}
  local offsets = call('HMGET', KEYS[2], unpack(ARGV, 2)) -- at most 1,000: the fields
  return {Producers.has_lost_offsets(q, ARGV[1]) and 1 or 0, q.now, offsets}
end

-- @verb release: forget ids of a gateway's clients that will never write with them again. A full server refuses it, as
-- it refuses a write: by that a gateway's health check sees that the server is full.
-- KEYS[1] dedup: what each id stands for
-- KEYS[2] dedup_index: ids by the end of their memory
-- ARGV[1..] rest: the ids, at most 1,000, each with its token's name and ':' before it
-- Reply: how many of them were remembered
function verbs.release(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'dedup', 'dedup-index'})
  Arguments.check(ARGV, {}, {'gateway_id'}, 1000)
  local fields, seen = {}, {}
  for at = 1, #ARGV do
    local field = 'g:' .. ARGV[at]
    if not seen[field] then fields[#fields + 1], seen[field] = field, true end
  end
  local q = new_q{keys = {[DEDUP] = KEYS[1], [DEDUP_INDEX] = KEYS[2]}}
  local texts = call('HMGET', q.keys[DEDUP], unpack(fields)) -- at most 1,000: the ids
  call('ZCARD', q.keys[DEDUP_INDEX]) -- a look, before the effects
  return Ids.forget(q, fields, texts)
end

-- @verb remember | allow-oom: write down what a streaming query holds, and by when it is forgotten. Both at once: a
-- query that died between the two would leave a key for ever.
-- KEYS[1..] holds: that of the query
-- ARGV[1] field: number of a micro-batch, or the name of another field
-- ARGV[2] record: of its leases, or what that field has
-- ARGV[3] keep: for how many ms
-- ARGV[4] dropped: the field that this one takes the place of, '' if none
-- Reply: 'OK'
function verbs.remember(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_own(KEYS, 1, 'hold-')
  Arguments.check(ARGV, {'field', 'any', 'ms', 'field'})
  call('HSET', KEYS[1], ARGV[1], ARGV[2]) -- fails before anything has changed if this is no hash
  if ARGV[4] ~= '' then call('HDEL', KEYS[1], ARGV[4]) end
  call('PEXPIRE', KEYS[1], ARGV[3])
  return 'OK'
end

-- @verb skip | no-writes: go some entries on in a stream, without handing out any.
-- KEYS[1..] streams: the one in which to continue
-- ARGV[1] after: entry id to start after
-- ARGV[2] until: entry id that is not to be passed
-- ARGV[3] most: how many entries
-- Reply: {id of the last of them (or `after`), how many there were}
function verbs.skip(KEYS, ARGV)
  if not call then begin() end
  Arguments.check(ARGV, {'id', 'id_or_end', 'count'})
  local entries = call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
  local last = entries[#entries]
  return {last and last[1] or ARGV[1], #entries}
end

-- @verb journal | no-writes: some of what happened to the queue's messages, oldest first (docs/journal.md).
-- KEYS[1] meta: the queue's id, number of the newest event
-- KEYS[2] journal: what happened to the messages
-- ARGV[1] after: number of the last event that the caller has seen
-- ARGV[2] most: events to return, and those beyond of the entry that holds the last of them
-- Reply: {the queue's id, number of the newest event, 1 if there are more, {{id, {field, value}}, ...}}
--        | {} when there is no such queue
function verbs.journal(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'journal'})
  Arguments.check(ARGV, {'number', 'events'})
  local queue_id, newest = unpack(call('HMGET', KEYS[1], 'id', 'events')) -- at most 2: the fields
  if not queue_id then return {} end
  local rows, found, most = {}, 0, ARGV[2] + 0
  local from = '(' .. ARGV[1] .. '-18446744073709551615'
  repeat
    local page = call('XRANGE', KEYS[2], from, '+', 'COUNT', 32)
    for _, entry in ipairs(page) do
      if found >= most then return {queue_id, newest, 1, rows} end
      -- The first line of an entry's value has one letter for each event. An entry that something else wrote counts as
      -- one event: otherwise a page of such entries would never end.
      local version, value = entry[2][1], entry[2][2]
      local is_ours = version == Journal.VERSION or version == '1'
      local letters = is_ours and find(value, '\n', 1, true) or 2
      found, rows[#rows + 1], from = found + max(1, letters - 1), entry, '(' .. entry[1]
    end
  until #page < 32
  return {queue_id, newest, 0, rows}
end
