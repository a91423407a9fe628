-- Names that all modules use: Redis's and Lua's functions, the keys of a queue, and lists of arguments that several
-- functions of a call put together.

-- A library may not look at `redis` and `string` while it is loaded (Valkey), so each verb sets these at its first
-- call.
local call
local pcall_redis
local match
local gmatch
local gsub
local sub
local find
local byte
local char
local rep
local format
local floor
local ceil
local max
local min
local abs
local exp
local log
local concat
local sha1hex

local function begin()
  call = redis.call
  pcall_redis = redis.pcall
  match = string.match
  gmatch = string.gmatch
  gsub = string.gsub
  sub = string.sub
  find = string.find
  byte = string.byte
  char = string.char
  rep = string.rep
  format = string.format
  floor = math.floor
  ceil = math.ceil
  max = math.max
  min = math.min
  abs = math.abs
  exp = math.exp
  log = math.log
  concat = table.concat
  sha1hex = redis.sha1hex
end

-- The keys of a queue. Every verb that touches messages declares the first of them in this order, so a function of any
-- module finds a key at the same place. The streams that a call may touch come after those. Each declared key costs a
-- call as much as thirty steps: so a plain write, read or ack may declare the first five alone, and is refused before
-- its first effect if it needs another (`Arguments.check_plain`).
local META = 1
local BODIES = 2
local TURNS = 3
local NOTIFICATIONS = 4
local LEASES = 5
local DUE = 6
local JOURNAL = 7
local DELAYED = 8
local ERRORS = 9
local CANCELLED = 10
local DEDUP = 11
local DEDUP_INDEX = 12
local PRODUCERS = 13
local BULK_OFFSETS = 14
local RETURNED = 15
local DEAD = 16
local MOVED = 17
local FINISHED = 18
local FAILURES = 19

local FEW = 5 -- the keys that a plain call declares

-- Records: variables of these names are tables with these fields, which stand in numbered places in what is sent
-- (shardq/protocol/records.py). `q` is a call on a queue; `a` is an account, `child` and `holder` what waits of one;
-- `w` is a message that was taken out of those that wait; `message` is one that is written.
-- @record q: keys fixed values now rules line odd virtual behind shared turns due_at waiting servable cancels accounts
--   declared names changes given over lists dirty blocks children events unset ended counts marks prefix last_stream
--   lease_at jump ready lengths numbers grown is_wide producer_ends producer_number producer_moves producer_is_known
--   appended wakes settled ended_leases has_looked has_taken has_read_bodies has_read_turns cursors touched next_stream
--   walk owed seen_at due_turns found entries again granted count holder has_all ends mark ends_text visibility
--   contested prefer missed more noted has_changed_odd piece places full_at legacy is_legacy_done is_catching_up
--   last_due purged most shares changed_shares dead_shares letters used_numbers are_slots ended_tokens hands_on
--   lengths_left failed asked next_score adds_due
-- @record a, child, holder, other: name behind returned queue taken flight delayed served full_at look_at listed
--   counted limits text ruled score next_at overflow cap burst pause weight interval by most next_score account
--   body_head is_looked_at place left ends
-- @record message: shard key tag payload headers attributes unique_key unique_known delay
-- @record w: account key place id attempts flags since body attributes payload

-- Functions that nearly every call of a single message uses: each is a local of the whole text
-- (shardq/protocol/constants.py).
-- @direct State.open_call State.put State.save_state Accounts.meet Accounts.save_account Accounts.load_accounts
-- @direct Arguments.check_plain Turns.save_accounts Turns.schedule Turns.flush_turns Rules.owner_of Rules.parent_of
-- @direct Messages.is_ours Messages.stream_key Messages.drop_body Notifications.notify_reader
-- @direct Streams.append Streams.goes_to_stream Streams.ready Streams.ready_streams Streams.mark Streams.save_entries
-- @direct Streams.take_entries Streams.save_streams Leases.grant Leases.is_counted Leases.end_flight Limits.allowance
-- @direct Producers.check_call Producers.note_call Settle.close_change Settle.save_rest Virtual.due_turns
-- @direct Notifications.pass_watch_on Virtual.put_due_turns Overflow.overflow_of Overflow.block_field
-- @direct Overflow.read_block Waiting.overflow_base

local PARTS = 5 -- of a token: place, id, attempt, marks and key
local LATE = 50 -- ms by which a token may be taken late without being lost
local NEVER = 9000000000000000 -- the score of a sentinel: later than anything
local FAR = 9000000000000 -- "never", in ms: later than any time of a message
local LEASES_PIECE = 96 -- what a read takes back at most of leases that have ended
local PIECE = 128 -- what a read of many takes at most out of an index of what time has brought
local LEAST_PIECE = 16 -- what a read of one takes, or one that has other things to do

-- Arguments of a command that several functions of a call put together: a list by name, sent once.
local function add(q, name, one, two)
  local lists = q.lists
  if not lists then
    lists = {}
    q.lists = lists
  end
  local list = lists[name]
  if not list then
    lists[name] = {one, two} -- tables that grow take longer
    return
  end
  local n = #list
  list[n + 1] = one
  if two then list[n + 2] = two end
end

-- Sends a list with its command to the key at this place, in parts that Lua can hand over at once.
local function send(q, name, command, place)
  local list = q.lists and q.lists[name]
  if not list then return end
  local key = q.keys[place]
  q.lists[name] = nil
  local size = #list
  for from = 1, size, 4000 do
    call(command, key, unpack(list, from, size < from + 4000 and size or from + 3999)) -- at most 4,000: a part
  end
end

-- Redis's clock, in whole ms.
local function read_time()
  local time = call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- Fails if one of these keys has another type. Redis does not roll a call back, so a call looks at the keys that it may
-- change before its first effect.
local function check_types(hashes, sorted_sets, streams)
  for _, key in ipairs(hashes) do call('HLEN', key) end
  for _, key in ipairs(sorted_sets) do call('ZCARD', key) end
  for _, key in ipairs(streams) do call('XLEN', key) end
end

-- Keeps what a text says for later calls, below the text, and returns how many bytes are kept. All queues of the server
-- share it: so a value follows from its text alone, and nobody changes one. The texts come from queues, so there is a
-- bound: one that is large is not kept, and with the bound full all are dropped.
local MOST_KEPT = 1048576 -- bytes of texts, and of what they say
local LARGEST_KEPT = 65536 -- bytes of a text
local VALUE = 1000 -- bytes of what a text says, about

local function keep(values, bytes, text, value)
  if #text > LARGEST_KEPT then return bytes end
  if bytes + #text + VALUE > MOST_KEPT then
    for each in pairs(values) do values[each] = nil end
    bytes = 0
  end
  values[text] = value
  return bytes + #text + VALUE
end

-- Numbers as texts. To make one takes Lua as long as a hundred steps, and it writes one of 15 digits and more in short.
-- So small ones are kept; and of larger ones what stands before their last three digits, which moments of one second
-- share, and services that are about the same. All queues share them too, so only whole numbers that a double holds
-- exactly are kept: above, the last digits are not what is left of a division.
local EXACT = 9007199254740992 -- 2^53
local spelled = {}
local small_numbers = {} -- by their texts: to read one takes as long as ten steps
local heads, heads_known = {}, 0
local tails = {}

local function spell_anew(number)
  number = number + 0 -- it may be a text of one
  local text = format('%.0f', number)
  if number < 0 or number >= EXACT or number % 1 ~= 0 then return text end
  if number < 4096 then
    spelled[number], small_numbers[text] = text, number
    return text
  end
  local tail = number % 1000
  tails[tail] = sub(text, -3)
  if heads_known >= 4096 then
    heads = {}
    heads_known = 0
  end
  heads[(number - tail) / 1000], heads_known = sub(text, 1, -4), heads_known + 1
  return text
end

local function spell(number)
  local text = spelled[number]
  if text then return text end
  local tail = number % 1000
  local head, digits = heads[(number - tail) / 1000], tails[tail]
  if head and digits then return head .. digits end
  return spell_anew(number)
end

-- A moment in ms, in parts that a limit may give.
local function spell_moment(at)
  if at % 1 == 0 then return spell(at) .. '.000' end
  return format('%.3f', at)
end

-- A moment as it stands in members of a sorted set, which are in the order of their letters.
local function spell_sortable(at)
  local text = spell(at)
  return rep('0', 14 - #text) .. text
end

-- The verbs: what Redis runs.
local verbs = {}
