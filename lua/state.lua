-- All small state of a queue is in one hash, `meta`. A call looks at it once (`open_call`) and writes down what has
-- changed once (`save_state`).
--   epoch      a nonce that changes with the settings; it begins with the number of the format
--   rules      the epoch and the settings that calls heed, as one text: see rules.lua
--   line       how those stand that wait, as one text (see `read_line`)
--   shared     messages in the streams
--   last       time in ms and number in the id of the last message, "ms-number"
--   lease_at   no moment in `leases` is earlier, in ms
--   seen_at    how turns proceed (virtual.lua). (Not in `line`, which earlier versions read, too.)
--   ready      a digit for each stream: 1 if it has something undelivered
--   offset     the stream at which reads continue, in its last four digits; before these, the number of deliveries
--   odd        what is not as usual, a line "name=value" for each (see `read_odd`)
--   n, adopted messages that were written, and those taken out of the legacy stream; `expired`, `cancelled`, `purged`,
--              `dead_lettered`, `redriven`, `vanished` what became of them: who is over and none of these was acked.
--              `redelivered` deliveries of messages that had been delivered before
--   paused_by  who paused the whole queue: "since\31by\31note"; of no meaning while it is not paused
--   retrying   delayed messages that wait for their next try
-- and by name: a stream's key: its messages; 'h' and its number: its cursor, the last entry that a read has taken; 'p:'
-- and a producer: its last call; 't:' and a shard key: its account; 'c:' and a child: children.lua; 'D:',
-- 'X:', 'R:' and 'H:': what a tenant uses of bounds (shares.lua); 'S:' and a schedule: how far it is, 'L:': its last
-- calls (schedules.lua).
-- Each field that a call looks at costs it as much as sixty steps of Lua, so what seldom changes has one for several.
State.COMMON = 4 -- every call looks at these fields, before those of its own

State.NO_LINE = '0 0 0 0 9000000000000 0 0'

local known_lines = {}
local known_bytes = 0
local known_ends = {} -- of lines
local known_bytes_of_ends = 0

-- Reads what a line ends with, which few calls change.
local function read_end(text)
  local due_at, waiting, cancels = match(text, '^(%S+) (%d+) (%d+)$')
  local ends = {due_at + 0, waiting + 0, cancels + 0}
  known_bytes_of_ends = keep(known_ends, known_bytes_of_ends, text, ends)
  return ends
end

-- Reads "virtual behind turns servable due_at waiting cancels":
--   virtual    the virtual time, in 0.1 ms (virtual.lua)
--   behind     messages that wait in `returned` or in overflows
--   turns      shard keys that wait in the key `turns`
--   servable   messages that wait of those shard keys: the others may have no more now
--   due_at     no moment in `due` is earlier, in ms
--   waiting    until when a reader may be blocked, in ms
--   cancels    how many messages in flight were cancelled
-- Where nothing waits the text stays, so such a one is remembered.
function State.read_line(text)
  local virtual, behind, turns, servable, last = match(text, '^(%d+) (%d+) (%d+) (-?%d+) (.*)$')
  local ends = known_ends[last] or read_end(last)
  local line = {
    virtual + 0, small_numbers[behind] or behind + 0, small_numbers[turns] or turns + 0,
    small_numbers[servable] or servable + 0, ends[1], ends[2], ends[3], virtual, last, -- as these two are spelled
  }
  if behind == '0' then known_bytes = keep(known_lines, known_bytes, text, line) end
  return line
end

local USUAL = {}

-- Reads what is not as usual:
--   paused     "until,length" of a pause of the whole queue, in ms
--   jump       the last jump of the server's clock: see clock.lua
--   walk       where the walk over all accounts continues
--   late       until when moments were noted by this clock: if that lies ahead, it was set back (see due.lua)
--   owed       streams that owe a turn, since a reader that preferred them took a message out of order: ",3,17,"
--   void       reads that are given up on, and until when: they lease nothing if they come late
--   watched    when the watching reader will wake for the next timed event; "-" if it does not know yet
--   deputies   when its deputies do, "ms ms"
--   handed     while blocked readers hand the news of a moment on, one to the next: since when they do
--   round      while leases that ended are taken back: how many messages of those that wait may be delivered meanwhile
--   places     how many places of children `delayed` has (children.lua)
--   forget     1 if the next write with all keys is to forget what has ended
--   heavy      what those weigh that wait for a turn, beside one for each: see limits.lua
--   idle       1 while `turns` may hold shard keys with nothing waiting
function State.read_odd(text)
  if text == '' then return USUAL end
  local odd = {}
  for name, value in gmatch(text, '(%l+)=([^\n]*)') do odd[name] = value end
  return odd
end

local function spell_odd(odd)
  local lines = {}
  for name, value in pairs(odd) do lines[#lines + 1] = name .. '=' .. value end
  return concat(lines, '\n')
end

-- Notes something that is not as usual; '' if it is again.
function State.put_odd(q, name, value)
  if (q.odd[name] or '') == value then return end
  -- A copy, since USUAL is shared by all calls.
  if not q.has_changed_odd then
    local copy = {}
    for each, its_value in pairs(q.odd) do copy[each] = its_value end
    q.odd, q.has_changed_odd = copy, true
  end
  q.odd[name] = value ~= '' and value or nil
end

-- Does so at once.
function State.set_odd(meta, name, value)
  local odd = {}
  for each, its_value in pairs(State.read_odd(call('HGET', meta, 'odd'))) do odd[each] = its_value end
  odd[name] = value ~= '' and value or nil
  call('HSET', meta, 'odd', spell_odd(odd))
end

-- Begins a call with a look at the fields that every call heeds, and at more of its own. `fixed` keys are declared
-- before the streams. Nil if there is no such queue. (`q.keys` are those that are `declared`, but where a call declares
-- few: see `Arguments.check_plain`.)
function State.open_call(KEYS, fixed, ...)
  local v = call('HMGET', KEYS[META], 'rules', 'line', 'shared', 'odd', ...)
  if not v[1] then return nil end
  local time = call('TIME')
  local line = known_lines[v[2]] or State.read_line(v[2])
  local shared, odd, micros = small_numbers[v[3]] or v[3] + 0, v[4], time[2]
  v[3] = shared
  return new_q{
    keys = KEYS, declared = KEYS, fixed = fixed, values = v, now = time[1] * 1000 + (micros - micros % 1000) / 1000,
    -- The same text is the same rules, in each queue and for each call: so the settings are parsed once.
    rules = Rules.known[v[1]] or Rules.rules_of(v[1]), line = line, shared = shared,
    virtual = line[1], behind = line[2], turns = line[3], servable = line[4], due_at = line[5], waiting = line[6],
    cancels = line[7], odd = odd == '' and USUAL or State.read_odd(odd),
    accounts = {}, names = {nil},
    changes = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
    more = nil, -- the last one that many calls have: tables that grow take longer
  }
end

-- Returns how many messages are not yet due: without the sentinel, and the places of children. (Not by a look at the
-- names: a role that only writes may not see them.)
function State.count_delayed(KEYS, odd) return max(0, call('ZCARD', KEYS[DELAYED]) - 1 - (odd.places or 0)) end

-- Returns how many messages are not over: they wait in streams or behind, are not yet due, or in flight.
function State.count_living(KEYS, shared, behind, odd)
  local delayed = State.count_delayed(KEYS, odd)
  local leased = call('ZCARD', KEYS[LEASES]) - 1
  return shared + behind + delayed + max(0, leased), delayed
end

-- Notes what a field of the state says from now on.
function State.put(q, field, value)
  local changes = q.changes
  local n = #changes
  changes[n + 1], changes[n + 2] = field, value
end

-- Notes that a field of the state is gone. (Not among the lists of other keys: an ack has nothing for these.)
function State.unset(q, field)
  local unset = q.unset
  if unset then unset[#unset + 1] = field else q.unset = {field} end
end

-- Counts something in the state that few calls do.
function State.count_up(q, field, number)
  local counts = q.counts
  if not counts then
    counts = {}
    q.counts = counts
  end
  counts[field] = (counts[field] or 0) + number
end

-- Adds what was counted to a counter that the call has looked at: so it is written with the rest.
function State.put_counted(q, field, before)
  local number = q.counts and q.counts[field]
  if not number then return end
  q.counts[field] = nil
  State.put(q, field, spell((tonumber(before or 0) or 0) + number))
end

local function spell_end(q) return spell_moment(q.due_at) .. ' ' .. spell(q.waiting) .. ' ' .. spell(q.cancels) end

-- Notes what has changed, and writes it down at once.
function State.save_state(q)
  local line = q.line
  -- A count that was too low, since somebody has changed it by hand, must not make the state unreadable.
  if q.behind < 0 then q.behind = 0 end
  if q.turns < 0 then q.turns = 0 end
  if q.cancels < 0 then q.cancels = 0 end
  local has_same_end = q.due_at == line[5] and q.waiting == line[6] and q.cancels == line[7]
  if not has_same_end or q.virtual ~= line[1] or q.behind ~= line[2] or q.turns ~= line[3] or q.servable ~= line[4] then
    State.put(q, 'line', (q.virtual == line[1] and line[8] or spell(q.virtual)) .. ' '
      .. (spelled[q.behind] or spell(q.behind)) .. ' ' .. (spelled[q.turns] or spell(q.turns)) .. ' '
      .. (spelled[q.servable] or spell(q.servable)) .. ' ' .. (has_same_end and line[9] or spell_end(q)))
  end
  local shared = q.shared
  if shared ~= q.values[3] then State.put(q, 'shared', spelled[shared] or spell(shared)) end
  if q.has_changed_odd then State.put(q, 'odd', spell_odd(q.odd)) end
  local meta, changes, unset = q.keys[META], q.changes, q.unset
  local size = #changes
  for from = 1, size, 4000 do
    call('HSET', meta, unpack(changes, from, size < from + 4000 and size or from + 3999)) -- at most 4,000: a part
  end
  if unset then
    for from = 1, #unset, 4000 do
      call('HDEL', meta, unpack(unset, from, #unset < from + 4000 and #unset or from + 3999)) -- at most 4,000: a part
    end
  end
  if q.counts then
    for field, number in pairs(q.counts) do call('HINCRBY', meta, field, number) end
  end
end
