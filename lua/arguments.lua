-- The gate: everything that a caller sends is checked here before the first effect of its call, and none of it is
-- believed. A caller may send a function anything: a count without an end keeps all queues of the server waiting, and a
-- name that is another field of the state leaves a queue that nobody can read. A verb begins with the gate; those of
-- single messages (write, read, settle) look at their arguments as they take them apart, and refuse them in the same
-- way.

-- The kinds of arguments: a pattern and the greatest length in bytes; for a number the lowest and the highest, too; and
-- another kind that it may be instead.
local KINDS = {
  ['any'] = {'', 536870912},
  ['word'] = {'^[%w_-]+$', 64},
  ['field'] = {'', 256}, -- of a hash that has no others
  ['flag'] = {'^[01]?$', 1},
  ['epoch'] = {'^[%w._-]*$', 64},
  ['following'] = {'^3%.[%w._-]+$', 64}, -- of this format; it stands in `rules`, so it has no blank
  ['client'] = {'^[^\n]*$', 1024}, -- it is a line of the journal
  ['who'] = {'^[!-~]*\31[^%c]*\31[^%c]*$', 1400, also = 'client'}, -- "client\31by\31note"
  ['key'] = {'.', 1024}, -- a shard key; '' is the sentinel of hashes
  ['key_or_none'] = {'', 1024},
  ['unique_key'] = {'.', 512},
  ['kind_of_key'] = {'^[kgu]$', 1},
  ['tag'] = {'^[^l]$', 1}, -- 'l' is of what other programs wrote
  ['message_id'] = {'^%d+%-%d+%-%w[%w.%%_~-]*$', 3200},
  ['origin'] = {'^%w+$', 8},
  ['id'] = {'^(%d+)%-(%d+)$', 39},
  ['id_or_none'] = {'^$', 0, also = 'id'},
  ['id_or_end'] = {'^%+$', 1, also = 'id'},
  ['letter'] = {'^(%d+)%-(%d+)$', 39, also = 'message_id'},
  ['id_or_start'] = {'^%-$', 1, also = 'id'},
  ['place'] = {'^%w+:(%d+)%-(%d+)$', 48},
  ['token'] = {'^%w+:%d+%-%d+:%d+:[^:]*:[^:]*:', 1400},
  ['token_or_none'] = {'^$', 0, also = 'token'},
  ['position'] = {'', 2800}, -- where a list continues: an unknown place is not found
  ['costs'] = {'^[%d.,=~-]*$', 16384},
  ['error'] = {'', 65536},
  ['failure'] = {'', 4096}, -- malformed parts are left out (failures.lua)
  ['cursor'] = {'^%d+$', 20},
  ['number'] = {'^%d+$', 16, 0, 9007199254740992},
  ['number_or_none'] = {'^$', 0, also = 'number'},
  ['ms'] = {'^%d+$', 13, 0, 9000000000000}, -- how long something lasts, or a time of the server
  ['ms_or_none'] = {'^$', 0, also = 'ms'},
  ['moment'] = {'^%d+$', 16, 0, 9000000000000000}, -- a time of the server, or never
  ['moment_or_none'] = {'^$', 0, also = 'moment'},
  ['age'] = {'^ttl$', 3, also = 'ms_or_none'},
  ['count'] = {'^%d+$', 4, 0, 2000},
  ['few'] = {'^%d+$', 3, 0, 100},
  ['leases'] = {'^%d+$', 5, 1, 16000},
  ['events'] = {'^%d+$', 5, 0, 10000},
  ['streams'] = {'^%d+$', 4, 0, 4096},
  ['some_streams'] = {'^%d+$', 4, 1, 4096},
  ['stream'] = {'^l$', 1, also = 'streams'},
  ['bytes'] = {'^%d+$', 8, 0, 16777216},
  ['bindings'] = {'^%d+$', 8, 0, 10000000},
  ['weight'] = {'^%d+$', 3, 1, 100},
  ['plan'] = {'^[%w._-]+$', 64},
  ['limit'] = {'^%d+$', 13, 0, 1099511627776, also = 'nothing'},
  ['rate'] = {'^%d+%.?%d*$', 24, 0, 1000000, also = 'nothing'},
  ['own_limit'] = {'^%-$', 1, also = 'limit'},
  ['own_rate'] = {'^%-$', 1, also = 'rate'},
  ['own_cap'] = {'^=[%w._-]+$', 65, also = 'own_limit'},
  ['pause'] = {'^%+%d+$', 12, also = 'moment'},
  ['own_pause'] = {'^$', 0, also = 'pause'},
  ['change'] = {'^[+-]$', 1},
  ['binding'] = {'^[^ ]* [^ ]+$', 1024}, -- '' and ' ' are the version and the stamp
  ['stamp'] = {'', 1024}, -- another program may have written any, which is compared with this
  ['queue'] = {'^[%w._:/-]+$', 200},
  ['queue_or_none'] = {'^[%w._:/-]*$', 200},
  ['rule'] = {'^[%d|]*$', 32},
  ['shard'] = {'^%d[%d,]*$', 20480},
  ['assigned'] = {'^%d+$', 5, 0, 10000},
  ['schedule'] = {'^[%w_.:/@-]+$', 200},
  ['schedule_or_none'] = {'^[%w_.:/@-]*$', 200},
  ['fixed_schedule'] = {'^c:.', 1024},
  ['schedule_state'] = {'^%d*[%w._-]*$', 64}, -- how far it is
  ['schedule_flag'] = {'^[ap]$', 1},
  ['record'] = {'', 65536},
  ['kind_of_result'] = {'^%l*$', 16},
  ['bulk_offset'] = {'^o:.', 256},
  ['bulk_offset_or_none'] = {'^$', 0, also = 'bulk_offset'},
  ['gateway_id'] = {'^[^:|]+$', 1024, also = 'token_and_id'}, -- other fields have the token's name, and '|' behind it
  ['token_and_id'] = {'^[^:|]+:', 1024},
  ['no_producer'] = {'^%-$', 1},
  ['call_number'] = {'^%d+|%d+ p:.', 288, also = 'no_producer'},
  ['where'] = {'^%d+|%d+$', 32, also = 'nothing'},
  ['left'] = {'^%-$', 1, also = 'number'},
  ['line'] = {'^[^\n]*$', 512}, -- of an action
  ['nothing'] = {'^$', 0},
  ['worker'] = {'.', 256}, -- '' is the sentinel
  ['worker_row'] = {'^[01]|%d+|%d+%.?%d*|', 1000},
  ['work'] = {'^%d+|', 12288}, -- malformed parts are left out (beats.lua)
  ['work_or_none'] = {'^$', 0, also = 'work'},
  ['numbers'] = {'^%d+|[%d|.-]*$', 256},
  ['numbers_or_none'] = {'^$', 0, also = 'numbers'},
}

-- The same for the values of settings, by their names; for words the list of all.
local SETTINGS = {'@kinds_of_settings'}

-- Ends a call that has changed nothing.
function Arguments.refuse(what) error({err = 'ERR refused, and nothing was changed: ' .. what}) end

local ID_DIGITS = 19 -- of each number of an entry's id: more are none to Redis

local function is_of_kind(text, kind)
  local first, second = match(text, kind[1])
  local is_right = first and #text <= kind[2] and not (second and max(#first, #second) > ID_DIGITS)
  if is_right and kind[4] then is_right = text + 0 >= kind[3] and text + 0 <= kind[4] end
  return is_right or kind.also and is_of_kind(text, KINDS[kind.also])
end

local function check_one(text, name, at)
  local kind = KINDS[name]
  if is_of_kind(text, kind) then return end
  local range = kind[4] and format(' from %.0f to %.0f', kind[3], kind[4]) or ''
  Arguments.refuse('argument ' .. at .. ' is no ' .. gsub(name, '_', ' ') .. range)
end

-- Looks at all arguments: the first ones are of these kinds, the others of the kinds of a row; the number of rows is
-- bounded.
function Arguments.check(words, kinds, row, most)
  local fixed, size = #kinds, #words
  local width = row and #row or 1
  local rows = (size - fixed) / width
  if rows < 0 or rows % 1 ~= 0 or rows > (row and most or 0) then
    Arguments.refuse('there are ' .. size .. ' arguments')
  end
  for at = 1, fixed do check_one(words[at], kinds[at], at) end
  for at = fixed + 1, size do check_one(words[at], row[(at - fixed - 1) % width + 1], at) end
end

-- Looks at names and values of settings from an argument on. `unsets` says whether '' may take one back.
function Arguments.check_settings(words, first, unsets)
  if (#words - first) % 2 ~= 1 then Arguments.refuse('a setting has no value') end
  for at = first, #words, 2 do
    local kind, value = SETTINGS[words[at]], words[at + 1]
    if not kind then Arguments.refuse('argument ' .. at .. ' is no name of a setting') end
    local is_one
    if #kind == 1 then
      is_one = find(kind[1], ' ' .. value .. ' ', 1, true)
    else
      is_one = is_of_kind(value, kind)
    end
    if not is_one and not (unsets and value == '') then
      Arguments.refuse('argument ' .. at + 1 .. ' is no value of ' .. words[at])
    end
  end
end

-- Looks at an argument that is one of a few words; each has a blank before and behind it.
function Arguments.check_word(words, at, known)
  local is_known = find(known, ' ' .. words[at] .. ' ', 1, true)
  if not is_known then Arguments.refuse('argument ' .. at .. ' is none of' .. known) end
end

-- The keys of a queue by their places: those of base.lua, and behind them those that only some verbs have.
local NAMES = {'@keys'}

local FIRST_KEYS = 19 -- that verbs declare in the order of base.lua

local known = {} -- the names of keys, by that of `meta`
local known_bytes = 0

local function refuse_key(at)
  Arguments.refuse('key ' .. at .. ', or one behind it, is another one than this function has there')
end

local function prefix_of(key)
  local prefix = match(key or '', '^shardq:{[%w._:/#-]+}:')
  if not prefix then refuse_key(1) end
  return prefix
end

-- A call that declares few keys needs another: it ends, and has changed nothing. Its client sends it again with all.
local function refuse_few() error({err = 'MOREKEYS nothing was changed: this call needs all keys'}) end

local function names_of(meta)
  local names = {}
  local prefix = prefix_of(meta)
  for at, name in ipairs(NAMES) do names[at] = prefix .. name end
  names.prefix, names.streams = prefix, prefix .. 's'
  if names[META] ~= meta then refuse_key(META) end
  -- A key that is looked at and is none of these ends the call.
  names.few = setmetatable({unpack(names, 1, FEW)}, {__index = refuse_few}) -- at most 5: the few
  known_bytes = keep(known, known_bytes, meta, names)
  return names
end

-- Looks at the keys that the plainest call of a single message changes, but streams. Returns the names of all keys, how
-- many keys come before the streams, `size` or few, and those keys. A call that changes others looks at all of them
-- before (types.lua). If it declares few, that ends it: so the key is needed before the first effect.
function Arguments.check_plain(keys, size)
  local names = known[keys[META]] or names_of(keys[META] or '')
  if keys[BODIES] ~= names[BODIES] or keys[TURNS] ~= names[TURNS] or keys[NOTIFICATIONS] ~= names[NOTIFICATIONS]
    or keys[LEASES] ~= names[LEASES] then
    refuse_key(BODIES)
  end
  if keys[DUE] == names[DUE] then return names, size, keys end -- the first one behind the few
  return names, FEW, names.few
end

-- Looks at all keys of a call that begins by `check_plain`.
function Arguments.check_all(q)
  if q.fixed == FEW then refuse_few() end
  Arguments.check_first(q.keys, min(q.fixed, FIRST_KEYS)) -- behind these a verb may have one of its own
end

-- Looks at the first `count` keys of a queue, and at the next one if it has a name.
function Arguments.check_first(keys, size, following)
  local names = known[keys[META]] or names_of(keys[META] or '')
  for at = 2, size do
    if keys[at] ~= names[at] then refuse_key(at) end
  end
  if following and keys[size + 1] ~= names.prefix .. following then refuse_key(size + 1) end
end

-- Looks at a key that must be none of the queue's own.
function Arguments.check_foreign(keys, key)
  for at, name in ipairs(known[keys[META]] or names_of(keys[META])) do
    if name == key then refuse_key(at) end
  end
end

-- Looks at one key of a queue.
function Arguments.check_key(keys, at)
  local names = known[keys[META]] or names_of(keys[META] or '')
  if keys[at] ~= names[at] then refuse_key(at) end
end

-- Looks at keys which are not the first ones of a queue, by their names in Redis. Those of a router begin in another
-- way.
function Arguments.check_keys(keys, names, beginning)
  local names_of_queue = not beginning and known[keys[1] or '']
  local prefix = names_of_queue and names_of_queue.prefix or prefix_of(keys[1]) .. (beginning or '')
  for at, name in ipairs(names) do
    if keys[at] ~= prefix .. name then refuse_key(at) end
  end
end

-- Looks at the list of all queues, the only key that is of no queue.
function Arguments.check_shared(keys)
  if keys[1] ~= 'shardq:queues' then refuse_key(1) end
end

-- Looks at streams that must come in their order, from a key and a number on.
function Arguments.check_streams(keys, first, number, size)
  local prefix = prefix_of(keys[META]) .. 's'
  for at = 0, size - 1 do
    if keys[first + at] ~= prefix .. number + at then refuse_key(first + at) end
  end
end

-- Returns the number of a stream, if a key is one behind this prefix.
function Arguments.number_of_stream(prefix, key)
  local number = tonumber(sub(key, #prefix + 1))
  return number and number >= 0 and prefix .. spell(number) == key and number or nil
end

-- Looks at keys that may be any of the queue, from one on.
function Arguments.check_own(keys, first, name)
  local prefix = prefix_of(keys[1]) .. (name or '')
  for at = first, #keys do
    if sub(keys[at], 1, #prefix) ~= prefix then refuse_key(at) end
  end
end
