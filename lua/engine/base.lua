-- What all modules use: names of Redis's and Lua's functions, the keys of a queue, and lists of arguments that several
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
local concat

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
  concat = table.concat
end

-- The keys of a queue. Every verb that touches messages declares the first so many of them in this order, so a function
-- of any module finds a key at the same place. The streams that a call may touch come after those.
local META = 1
local BODIES = 2
local TURNS = 3
local DUE = 4
local NOTIFICATIONS = 5
local JOURNAL = 6
local PRODUCERS = 7
local DELAYED = 8
local DEDUP = 9
local DEDUP_INDEX = 10
local BULK_OFFSETS = 11
local LEASES = 12
local RETURNED = 13
local ERRORS = 14
local DEAD = 15
local MOVED = 16
local FINISHED = 17
local CANCELLED = 18

local LATE = 50 -- ms by which a token may be taken late without being lost
local NEVER = 9000000000000000 -- the score of a sentinel: later than anything
local FAR = 9000000000000 -- "never", in ms: later than any time of a message
local LEASES_PIECE = 256 -- what a read takes back at most of leases that have ended
local PIECE = 128 -- what a read of many takes at most out of an index of what time has brought; a read of one a quarter

-- Arguments of a command that several functions of a call put together: a list by name, sent once.
local function add(q, name, one, two)
  local lists = q.lists
  if not lists then
    lists = {}
    q.lists = lists
  end
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  local n = #list
  list[n + 1] = one
  if two then list[n + 2] = two end
end

-- Sends a list with its command, in parts that Lua can hand over at once.
local function send(q, name, command, key)
  local list = q.lists and q.lists[name]
  if not list then return end
  q.lists[name] = nil
  for from = 1, #list, 4000 do
    call(command, key, unpack(list, from, min(#list, from + 3999))) -- at most 4,000: a part
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

-- Redis writes a number of 13 digits and more in short, so it needs a format.
local function spell(number) return format('%.0f', number) end

-- The verbs: what Redis runs.
local verbs = {}
