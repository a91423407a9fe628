-- All small state of a queue is in one hash, `meta`. A call looks at it once (`open_call`) and writes down what has
-- changed once (`save_state`).
--   epoch      a nonce that changes with the settings; it begins with the number of the format
--   rules      the settings that calls heed, as one text: see rules.lua
--   virtual    the virtual time: how much service a shard key has received that is served now, in 0.1 ms
--   behind     messages that wait in `returned` or in overflows; `shared` those in the streams
--   turns      shard keys that wait in the key `turns`
--   gone       messages that are over; `acked` those of them that were acked
--   due_at     no moment in `due` is earlier, in ms; `lease_at` the same of `leases`
--   waiting    until when a reader may be blocked, in ms
--   cancels    how many messages in flight were cancelled
--   servable   messages that wait of shard keys which wait in `turns`: the others may have no more now
--   n, ms      number and time in the id of the last message
--   ready      a digit for each stream: 1 if it has something undelivered
--   offset     the stream at which reads go on
--   paused     "until,length" of a pause of the whole queue, in ms; '' if there is none
--   full_at    when the bucket of the whole queue is full, in ms
--   jump       the last jump of the server's clock: see clock.lua
--   walk       where the walk over all accounts goes on; '' if there is none
--   late       until when moments were noted by this clock: if that lies ahead, it was set back (see due.lua)
--   owed       streams that owe a turn, since a reader that preferred them took a message out of order: ",3,17,"
--   void       reads that are given up on, and until when: they lease nothing if they come late
--   idle       1 while `turns` may hold shard keys of which nothing waits
-- and by name: a stream's key: its messages; 'h' and its number: its cursor, the last entry that a read has taken; 'p:'
-- and a producer's lane: its last call; 't:' and a shard key: its account; 'c:' and a child: what waits of it.
State.COMMON = 12 -- of these fields every call looks at the first so many
State.OF_WRITE = 16 -- a write looks at so many
State.OF_READ = 25 -- a read looks at so many

-- One constructor each: a table that grows takes longer.
function State.fields_of_settle()
  return {
    'epoch', 'rules', 'virtual', 'behind', 'shared', 'turns', 'gone', 'acked', 'due_at', 'waiting', 'cancels',
    'servable',
  }
end

function State.fields_of_write(lane, KEYS, first)
  return {
    'epoch', 'rules', 'virtual', 'behind', 'shared', 'turns', 'gone', 'acked', 'due_at', 'waiting', 'cancels',
    'servable',
    'n', 'ms', 'ready', lane, unpack(KEYS, first), -- at most 4,096: the streams
  }
end

function State.fields_of_read(stream, cursor)
  return {
    'epoch', 'rules', 'virtual', 'behind', 'shared', 'turns', 'gone', 'acked', 'due_at', 'waiting', 'cancels',
    'servable',
    'n', 'ms', 'ready', 'offset', 'lease_at', 'paused', 'full_at', 'jump', 'walk', 'idle', 'void',
    'late', 'owed', stream, cursor,
  }
end

-- Begins a call: `fixed` keys are declared before the streams. Nil if there is no such queue.
function State.open_call(KEYS, fields, fixed)
  local time = call('TIME')
  local v = call('HMGET', KEYS[META], unpack(fields)) -- at most 4,400: fields, streams and accounts
  if not v[1] then return nil end
  local virtual, behind, shared, turns, gone = v[3] + 0, v[4] + 0, v[5] + 0, v[6] + 0, v[7] + 0
  local acked, due_at = v[8] + 0, v[9] + 0
  v[3], v[4], v[5], v[6], v[7], v[8], v[9] = virtual, behind, shared, turns, gone, acked, due_at
  return {
    keys = KEYS, fixed = fixed, values = v, now = time[1] * 1000 + floor(time[2] / 1000), rules = Rules.rules_of(v[2]),
    virtual = virtual, behind = behind, shared = shared, turns = turns, gone = gone, acked = acked, due_at = due_at,
    waiting = v[10] + 0, servable = v[12] + 0, accounts = {}, names = {}, changes = {}, changed = 0,
  }
end

-- Notes what a field of the state says from now on.
function State.put(q, field, value)
  local n = q.changed
  q.changes[n + 1], q.changes[n + 2], q.changed = field, value, n + 2
end

-- Notes that a field of the state is no more. (Not among the lists of other keys: an ack has nothing for these.)
function State.unset(q, field)
  local unset = q.unset
  if unset then unset[#unset + 1] = field else q.unset = {field} end
end

function State.count_up(q, field, number)
  if number then call('HINCRBY', q.keys[META], field, number) end
end

function State.put_counters(q)
  local v = q.values
  if q.virtual ~= v[3] then State.put(q, 'virtual', spell(q.virtual)) end
  if q.behind ~= v[4] then State.put(q, 'behind', q.behind) end
  if q.shared ~= v[5] then State.put(q, 'shared', q.shared) end
  if q.turns ~= v[6] then State.put(q, 'turns', q.turns) end
  if q.gone ~= v[7] then State.put(q, 'gone', q.gone) end
  if q.acked ~= v[8] then State.put(q, 'acked', q.acked) end
  if q.due_at ~= v[9] then State.put(q, 'due_at', format('%.3f', q.due_at)) end
  if q.servable ~= v[12] + 0 then State.put(q, 'servable', q.servable) end
  if q.has_moments and not q.last_due then State.put(q, 'late', format('%.3f', q.now)) end
end

function State.save_state(q)
  local changes = q.changes
  for from = 1, q.changed, 4000 do
    call('HSET', q.keys[META], unpack(changes, from, min(q.changed, from + 3999))) -- at most 4,000: a part
  end
  local unset = q.unset
  for from = 1, unset and #unset or 0, 4000 do
    call('HDEL', q.keys[META], unpack(unset, from, min(#unset, from + 3999))) -- at most 4,000: a part
  end
  q.unset = nil
end
