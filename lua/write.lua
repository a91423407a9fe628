-- The verb write: store messages, all or none.
--
-- Its effects, in their order. Redis undoes nothing of a call that fails, so whatever may fail comes above the line.
--   look        the state, the accounts; is the epoch right, was this call done before
--   forget      HDEL, ZREM: keys, producers, offsets that have ended: they count no more, also after a refusal
--   refuse      TAKEN, FULL: nothing else has changed
--   keys        HSET, ZADD: dedup and unique keys, as each message is stored: the next one may have the same
--   look again  at the types of what is pending (types.lua)
--   ------------------------------------------------------------------------------------------------------------------
--   entries     XADD
--   producer    ZADD: until when the producer is remembered; its last reply is a field of the state
--   state       HSET: lengths, accounts, the producer, the last id, all in one
--   waiting     HSET: blocks and bodies; ZADD: turns, delayed, due; the offset of a bulk write. (Where blocks are all,
--               they come before the state, as their look.)
--   tell        XADD: notifications, journal, which fail no call; in between, some more that has ended is forgotten
-- To the log and to replicas all of it goes as one transaction, so after a crash all is there or none.

local MOST_DIGITS = 13 -- of a time in ms, which is before the year 2287, and of other numbers

local function refuse_options() Arguments.refuse('the options of a message are none') end

-- Reads the options of a message: "delay in ms|ms to its deadline|dedup key"; "delay|ms to its deadline@most|id" with
-- an id that a gateway gives, and how many its token may keep (ids.lua); with a unique key it is "delay|ms to its
-- deadline/<mode><length of the unique key>|id that the key is taken from|unique key and dedup key". With '=' in front
-- it is only for where its key is known: the message is not stored, but one with its key stands for it.
local function read_options(q, text, shard_key)
  local option = {unique_key = '', dedup_key = ''}
  if byte(text) == 61 then option.must_be_known, text = true, sub(text, 2) end -- '='
  local after, lasts, mode, length, takes_from, keys = match(text, '^(%d*)|(%d*)/(%a)(%d+)|([^|]*)|(.*)$')
  local separator, dedup_key
  if mode then
    if #length > 4 or length + 0 > #keys or length == '0' then refuse_options() end
    option.unique_key, dedup_key = sub(keys, 1, length), sub(keys, length + 1)
    option.mode, option.takes_from = mode, takes_from
    option.unique_key = Producers.scope_key(q, shard_key, option.unique_key)
  else
    after, lasts, separator, dedup_key = match(text, '^(%d*)|(%d*)([|@])(.*)$')
  end
  if not after or #after > MOST_DIGITS or #lasts > MOST_DIGITS then refuse_options() end
  if separator == '@' then
    local most, id = match(dedup_key, '^(%d+)|(.+)$')
    if not most or #most > MOST_DIGITS then refuse_options() end
    Arguments.check({id}, {'gateway_id'})
    option.most_ids, option.dedup_key = most + 0, 'g:' .. id
  elseif dedup_key ~= '' then
    option.dedup_key = 'k:' .. Producers.scope_key(q, shard_key, dedup_key)
  end
  option.after, option.delay, option.attributes = after, tonumber(after) or 0, ''
  -- Slots say when they are due, by this clock. One that is late has the shortest delay.
  if q.are_slots then option.delay = max(1, option.delay - q.now) end
  if lasts ~= '' then option.attributes = ' x' .. spell(q.now + lasts) end
  if option.delay > 0 then option.attributes = option.attributes .. ' t' .. spell(q.now + option.delay) end
  return option
end

-- Returns the options of those messages of a call that have any, and how many keys they have.
local function all_options(q, ARGV, count)
  local options, keyed = {}, 0
  for i = 1, count do
    local text = ARGV[1 + i * 6]
    if text ~= '' then
      local option = read_options(q, text, ARGV[3 + (i - 1) * 6])
      if option.dedup_key ~= '' then keyed = keyed + 1 end
      if option.unique_key ~= '' then keyed = keyed + 1 end
      options[i] = option
    end
  end
  return options, keyed
end

-- Looks up which message stands for one by its dedup key: an earlier one, or one of this call; `first` has their
-- numbers by key. If none does, the key is remembered for this one.
local function find_by_dedup_key(q, option, i, first)
  local key = option.dedup_key
  if key == '' then return false end
  option.same_as = first[key]
  if option.same_as then return true end
  first[key] = i
  option.standing, option.known = Unique.find_duplicate(q, key)
  option.is_remembered = not option.standing
  return not option.is_remembered
end

-- The same by its unique key. Returns whether one stands for it, and the id of the one that is in the way ('': it is of
-- this call).
local function find_by_unique_key(q, option, i, first)
  local key = option.unique_key
  if key == '' then return false end
  local at, holder = first['u:' .. key], nil
  if not at then
    holder, option.unique_known = Unique.find_unique(q, key)
    -- An earlier reply named this holder to the caller, and that it is being worked on (shardq/ops/write/unique.py): so
    -- its key is taken from it.
    if holder == option.takes_from then holder, option.must_be_known = nil, nil end
  end
  if not at and not holder then
    first['u:' .. key] = i
    return false
  end
  if option.mode ~= 'e' then return false, holder or '' end
  option.standing, option.same_as = holder, at
  return true
end

-- Finds which messages are not to be written, as if each were a call of its own: one after the other, so that a message
-- which is none of its own takes no key. Returns those that an earlier one stands for, by their numbers; how many keys
-- each of the others adds to those that have a place in `max_dedup`; and those that cannot be written, as
-- "number:message id".
local function find_earlier(q, options, count)
  local repeated, adds, conflicts, first = {}, {}, {}, {}
  for i = 1, count do
    local option = options[i]
    if option then
      local conflict
      local number = 0
      repeated[i] = find_by_dedup_key(q, option, i, first)
      if option.is_remembered and not option.most_ids then number = 1 end
      if not repeated[i] then repeated[i], conflict = find_by_unique_key(q, option, i, first) end
      if option.must_be_known and not repeated[i] then conflict = conflict or '-' end
      if conflict then conflicts[#conflicts + 1] = i .. ':' .. conflict end
      if option.unique_key ~= '' and not repeated[i] then number = number + 1 end
      if number > 0 then adds[i] = number end
    end
  end
  return repeated, adds, conflicts
end

-- Lets the dedup key of a message stand for the one with this id.
local function remember(q, option, id, window, owner)
  if option.most_ids then
    Ids.save(q, option.dedup_key, id, window, option.most_ids, option.known)
  else
    Unique.save_dedup_key(q, option.dedup_key, id, window, owner, option.known)
  end
end

-- Where the fields that a write looks at are among its values; the accounts come after those.
local LAST = State.COMMON + 1
local READY = State.COMMON + 2
local PRODUCER = State.COMMON + 3

local MOST_KEY = 1024 -- bytes of a shard key
local MOST_MESSAGES = 1000

-- Returns the accounts of a call's shard keys, as fields of the state.
local function fields_of_write(ARGV, count, stride)
  local fields = {nil}
  local seen = count > 1 and {} -- of a lone one there is nothing to see
  local n = 0
  for at = 3, 2 + (count - 1) * stride + 1, stride do
    local key, tag = ARGV[at], ARGV[at + 1]
    -- ('l' is the tag of what other programs wrote.)
    if #key == 0 or #key > MOST_KEY or #tag ~= 1 or tag == 'l' then
      Arguments.refuse('the shard key or the tag of a message is none')
    end
    if not (seen and seen[key]) then
      n = n + 1
      fields[n] = 't:' .. key
      if seen then seen[key] = true end
    end
  end
  return fields
end

-- Looks at all that must be known: the state, the producer's last call, and the accounts.
local function look_of_write(KEYS, ARGV, producer, count, stride)
  local names, fixed, keys = Arguments.check_plain(KEYS, 14)
  local fields = fields_of_write(ARGV, count, stride)
  -- Accounts are asked for before it is known whether the queue has any: fields that are missing cost less than a
  -- second look.
  local q = State.open_call(KEYS, fixed, 'last', 'ready', producer, unpack(fields)) -- at most 1,000: one for a message
  if not q then return nil end
  local v = q.values
  q.keys, q.lengths, q.is_wide, q.grown = keys, {nil}, #KEYS > fixed + 255, {nil}
  q.ready, q.prefix, q.numbers = v[READY], names.streams, {nil, nil, nil, nil, nil, nil}
  q.appended = {nil, nil, nil, nil, nil, nil, nil, nil}
  if q.rules.window == 0 then return q end
  -- The caller named children, and the accounts are their parents': that takes a second look.
  if q.rules.parents then
    local owners = {}
    for at = 1, #fields do owners[at] = Rules.owner_of(q.rules, sub(fields[at], 3)) end
    Accounts.load_accounts(q, owners)
  else
    for at = 1, #fields do Accounts.meet(q, sub(fields[at], 3), v[PRODUCER + at]) end
  end
  return q
end

-- Goes through the messages of a call in their order. Returns those that get no place in a bound, "1:800,5:20": each
-- with what its tenant uses by then (nothing where that is not known); and what is free then. `needs` says how many
-- places each takes, `used_by` what a tenant uses (nil: not known), and `has_room` whether it may use more.
local function beyond_bound(q, ARGV, count, stride, free, needs, used_by, has_room)
  local beyond, uses = {}, {}
  for i = 1, count do
    local more = needs[i] or 0
    if more > 0 then
      local owner = Rules.owner_of(q.rules, ARGV[3 + (i - 1) * stride])
      local own = uses[owner] or used_by and used_by(q, owner)
      if has_room(q, own or 0, free, more) then
        uses[owner], free = own and own + more, free - more
      else
        beyond[#beyond + 1] = i .. ':' .. (own or '')
      end
    end
  end
  return concat(beyond, ','), free
end

-- Returns what says whether a tenant may use more of such a bound.
local function has_share(bound)
  return function(_, own, free, more) return Shares.may_use(own, free, more, bound) end
end

-- Returns one place for each message that is new.
local function count_new(count, repeated)
  local needs = {}
  for i = 1, count do needs[i] = repeated[i] and 0 or 1 end
  return needs
end

local function count_messages(q, owner)
  local a = q.accounts[owner]
  return a.taken + a.behind + a.delayed + a.flight
end

-- Says who may not write since the queue holds as many messages as it may.
local function beyond_length(q, ARGV, count, stride, repeated)
  local bound = q.rules.max_len
  local unused = bound - State.count_living(q.keys, q.shared, q.behind, q.odd)
  local used_by = q.rules.window > 0 and count_messages or nil
  local needs = count_new(count, repeated)
  local beyond, free = beyond_bound(q, ARGV, count, stride, unused, needs, used_by, has_share(bound))
  if beyond ~= '' then return {'FULL', 'max_len', beyond, bound, bound - free, ''} end
end

local function count_remembered(q, owner) return Shares.used(q, 'D:', owner) end

-- Says who may not write since the queue remembers as many keys as it may.
local function beyond_keys(q, ARGV, count, stride, options, adds)
  local bound = q.rules.max_dedup
  -- The sentinel is no key, and ids have no place in this bound.
  local remembered = max(0, call('ZCARD', q.keys[DEDUP_INDEX]) - 1 - Ids.count(q))
  local owners = {}
  for i in pairs(options) do owners[#owners + 1] = Rules.owner_of(q.rules, ARGV[3 + (i - 1) * stride]) end
  Shares.load(q, 'D:', owners, remembered)
  local unused = bound - remembered
  local beyond, free = beyond_bound(q, ARGV, count, stride, unused, adds, count_remembered, has_share(bound))
  if beyond == '' then return nil end
  -- The first key that ends makes room, so the reply says when that is.
  local first = call('ZRANGEBYSCORE', q.keys[DEDUP_INDEX], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return {'FULL', 'max_dedup', beyond, bound, bound - free, spell(max(0, min(FAR, first) - q.now))}
end

local function count_waiting(q, owner)
  local a = q.accounts[owner]
  return a.taken + a.behind + a.delayed
end

local function is_below(q, own) return own < q.rules.backlog end

-- Says who may not write since too much of theirs waits.
local function beyond_backlog(q, ARGV, count, stride, repeated)
  local needs = count_new(count, repeated)
  local beyond = beyond_bound(q, ARGV, count, stride, 0, needs, count_waiting, is_below)
  if beyond ~= '' then return {'FULL', 'max_backlog', beyond, q.rules.backlog, '', ''} end
end

local NONE = {} -- for all calls: nobody changes it

-- Says which bound of the queue the call would break, nil if none.
local function broken_bound(q, ARGV, count, stride, repeated, options, adds)
  local rules = q.rules
  return rules.max_len > 0 and beyond_length(q, ARGV, count, stride, repeated)
    or adds ~= NONE and next(adds) and beyond_keys(q, ARGV, count, stride, options, adds)
    or rules.backlog > 0 and rules.window > 0 and beyond_backlog(q, ARGV, count, stride, repeated)
    or nil
end

-- Looks at the streams of a call, and at the shards of messages: none may be refused when others are stored. (A lone
-- one is looked at as it is stored.) One that lies apart may have none.
local function check_shards(q, ARGV, stride, options)
  Streams.meet_declared(q)
  local seen = {}
  for at = 2, #ARGV, stride do
    local shard, option = ARGV[at], options[(at - 2) / stride + 1]
    local lies_apart = shard == '' and option and (option.delay > 0 or option.unique_key ~= '')
    if not seen[shard] and not lies_apart then
      Streams.check_shard(q, shard)
      seen[shard] = true
    end
  end
end

-- Says why the messages cannot be written, nil if they can.
local function check_messages(q, ARGV, count, stride, options, keyed)
  local conflicts
  local repeated, adds = NONE, NONE
  if keyed > 0 then
    -- First, so that keys that have ended take no place in `max_dedup`; and more of them than come, so that they never
    -- pile up.
    Unique.forget_keys(q, 2 * keyed + 4)
    repeated, adds, conflicts = find_earlier(q, options, count)
    if #conflicts > 0 then return {'TAKEN', concat(conflicts, ',')} end
  end
  return broken_bound(q, ARGV, count, stride, repeated, options, adds)
end

-- Looks at what may be changed before the end of the call, by keys and where something is forgotten.
local function look_at_keys(q, keyed, offset, forgets)
  Arguments.check_all(q)
  if keyed > 0 then Types.look_at_written(q) end
  if forgets then check_types({q.keys[BODIES], q.keys[DEDUP]}, {q.keys[PRODUCERS], q.keys[DEDUP_INDEX]}, {}) end
  if forgets or offset then check_types({}, {q.keys[BULK_OFFSETS]}, {}) end
end

-- Every 32 messages this is done: some of what has ended is forgotten, more than comes in, also when nothing more of
-- its kind comes.
local function forget_some(q)
  Producers.forget_ended(q, q.keys[PRODUCERS], q.keys[META], 64)
  Producers.forget_ended(q, q.keys[BULK_OFFSETS], q.keys[DEDUP], 64)
  Unique.forget_keys(q, 64)
end

-- Says whether this call, whose turn it is, does so; or, as it declares few keys, leaves it to the next one with all.
local function note_forgetting(q)
  local forgets = q.fixed > FEW
  State.put_odd(q, 'forget', forgets and '' or '1')
  return forgets, not forgets
end

-- Wakes a reader, unless limits block what was written.
local function notify_of_waiting(q, a)
  if not a.ruled or Limits.allowance(a, q.now) >= 1 then Notifications.notify_reader(q) end
end

-- A message that lies by itself: it has a unique key, or is not yet due.
local function store_apart(q, message, id)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, message.key))
  local flags = message.unique_key ~= '' and 'u' or ''
  local tail = Messages.spell_tail(message.attributes, message.unique_key, message.tag, message.headers)
  local body, payload = Messages.spell_body('d', message.key, tail, message.payload)
  add(q, 'kept', id, body)
  if payload then add(q, 'kept', Messages.field_of_payload(id), payload) end
  if message.unique_key ~= '' then
    -- `dedup_index` has it from now on with the time of a first check: while its message waits, an earlier one would
    -- only put it off again (`keep_unique`).
    local full_id = id .. '-d'
    Unique.save_unique(q, message.unique_key, id, 'w', full_id, a.name, message.unique_known)
    call('ZADD', q.keys[DEDUP_INDEX], spell(q.now + Unique.FIRST_CHECK), 'u:' .. message.unique_key)
  end
  if message.delay > 0 then
    Due.put_off(q, a, message.key, q.now + message.delay, 'd', id, '0' .. flags)
  else
    -- Only a reference goes into the overflow: so `replace` finds the body, and changes it where it lies.
    Waiting.wait_behind(q, a, message.key, id, Messages.REFERENCE)
    notify_of_waiting(q, a)
  end
  return 'd'
end

-- Puts a message behind all that waits of its shard key. A large payload lies by itself, and is not copied.
local function hold_back(q, a, message, id)
  local tail = Messages.spell_tail(message.attributes, '', message.tag, message.headers)
  if Messages.is_large(message.payload) then
    add(q, 'kept', Messages.field_of_payload(id), message.payload)
    Waiting.wait_behind(q, a, message.key, id .. Messages.APART .. tail, '')
  else
    Waiting.wait_behind(q, a, message.key, id .. '|' .. tail, message.payload)
  end
  notify_of_waiting(q, a)
end

-- Stores one message. Returns the last part of its id.
local function store(q, message, id)
  if message.delay > 0 or message.unique_key ~= '' then return store_apart(q, message, id) end
  local place
  if q.rules.window == 0 then
    place = Streams.append(q, id, 'k', message)
  else
    local key = message.key
    local a = q.accounts[q.rules.parents and Rules.parent_of(key) or key]
    if Streams.goes_to_stream(q, a) then
      a.taken = a.taken + 1
      place = Streams.append(q, id, 'K', message)
    else
      hold_back(q, a, message, id)
      return 'o'
    end
  end
  Notifications.notify_reader(q, place)
  return place
end

local function set_options(message, headers, option)
  message.headers = headers
  message.delay, message.attributes = option and option.delay or 0, option and option.attributes or ''
  message.unique_key, message.unique_known = option and option.unique_key or '', option and option.unique_known
end

-- Stores the messages. Returns for each its place if it is new, else its id; and the number of the last one.
local function store_all(q, ARGV, count, stride, ms, n, options, keyed, window)
  local places = {nil}
  local ids = keyed > 0 and {} or NONE -- by number, of the messages that may stand for later ones
  local message = new_message{headers = '', attributes = '', unique_key = '', unique_known = nil, delay = 0} -- for all
  for i = 1, count do
    local at = 2 + (i - 1) * stride
    local option = options[i]
    local place = option and (option.standing or ids[option.same_as])
    if place then
      ids[i] = place
    else
      -- A repetition takes no number: so the caller counts the new ids from the first one on.
      n = n + 1
      message.shard, message.key, message.tag, message.payload = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
      if stride == 6 then set_options(message, ARGV[at + 4], option) end
      local id = ms .. '-' .. spell(n)
      place = store(q, message, id)
      if option and keyed > 0 then ids[i] = Messages.message_id(id, place, message.key) end
    end
    if option and option.is_remembered then
      remember(q, option, ids[i], window, Rules.owner_of(q.rules, ARGV[at + 1]))
    end
    places[i] = place
  end
  if q.used_numbers then Ids.save_numbers(q) end
  return places, n
end

-- The last blocks of those who have an overflow, by one look.
local function load_tails(q)
  local fields = {}
  for _, name in ipairs(q.names) do
    local a = q.accounts[name]
    if a.behind > a.returned and Overflow.overflow_of(a).size > 0 and a.overflow.size < Overflow.BLOCK - 60 then
      fields[#fields + 1] = Overflow.block_field(Waiting.overflow_base(name), a.overflow.tail)
    end
  end
  Overflow.load_blocks(q, fields)
end

-- Appends to the journal that messages were written, without those that an earlier one stands for. In the place of the
-- client, which a write does not name, are the tasks that they call, and behind them who asked for it, if it says so.
local function note_written(q, ARGV, prefix, places, stride, options)
  local kept, keys, lengths, dues, tasks = {}, {}, {}, {}, {}
  local has_dues, has_tasks = false, false
  for i, place in ipairs(places) do
    if not find(place, '-', 1, true) then
      local at, option = #kept + 1, options[i]
      local key = ARGV[3 + (i - 1) * stride]
      local first = 3 + (i - 1) * stride
      local task = Messages.task_in(ARGV[first + 1], ARGV[first + 2])
      kept[at], keys[at], lengths[at], dues[at], tasks[at] = place, key, #key, '', task
      if task ~= '' then has_tasks = true end
      if option and option.after ~= '' then dues[at], has_dues = spell(q.now + option.delay), true end
    end
  end
  if #kept == 0 then return end
  Journal.append_events(q, #kept, concat({
    rep('w', #kept), prefix .. concat(kept, ','), concat(lengths, ','), '', has_dues and concat(dues, ',') or '',
    (has_tasks and concat(tasks, ',') or '') .. (q.asked or ''), '', concat(keys),
  }, '\n'))
end

-- Appends the messages and writes down what has changed, and what is remembered of the call.
local function close_write(q, producer, offset)
  for position in pairs(q.grown) do
    local length = q.lengths[position]
    State.put(q, q.declared[q.fixed + position], spelled[length] or spell(length))
  end
  if q.marks then State.put(q, 'ready', Streams.ready(q)) end
  if q.children then Children.note(q) end
  Turns.save_accounts(q)
  -- The last looks. No effect after them may fail. (XADD still can, where another program added an entry with a later
  -- id.)
  -- Where one key beside the state is changed, its change is its look.
  local goes_first = q.dirty and not q.lists and #q.appended == 0
  if goes_first then
    Overflow.save_blocks(q)
  elseif q.dirty or q.lists then
    Types.look_at_waiting(q)
  end
  if #q.appended > 8 then Streams.look_at_grown(q) end -- more than one
  -- Entries before the state: on one stream XADD is its own look (`look_at_grown`). An entry beyond the count is found
  -- by a read (`count_foreign`), but one that is counted and not there counts as vanished.
  Streams.save_entries(q)
  if q.producer_moves then Producers.save_producer(q, producer) end
  if q.changed_shares then Shares.note(q) end
  State.save_state(q)
  if not goes_first and (q.dirty or q.lists) then
    Overflow.save_blocks(q)
    Turns.flush_turns(q)
    Due.save_due(q)
  end
  if offset then Producers.save_offset(q, offset) end
  -- Last: it cannot fail, and without it a reader finds the message at the end of its wait.
  if q.wakes then Notifications.wake_readers(q) end
end

local function refuse_sequence() Arguments.refuse('the sequence of the call, or the field of its producer, is none') end

-- A write of slots is for a schedule that is as far as the caller believes, and says how far it is then.
local function check_slot(q, field, expected, following)
  local said = q.values[PRODUCER] or ''
  if said ~= expected then return {'SLOT', said} end
  q.are_slots = true
  State.put(q, field, following)
end

local MAX_RUNS = 8 -- calls of a schedule that are remembered

-- Notes the last of the calls that were written for a schedule behind those before it: "slot:id slot:id ...".
local function note_run(q, field, sequence, id)
  local name = 'L:' .. sub(field, 3)
  local runs = {}
  for run in gmatch(sub(call('HGET', q.keys[META], name) or '', -1000), '%S+') do runs[#runs + 1] = run end
  runs[#runs + 1] = match(sequence, '^=[^=]*=(%d+)') .. ':' .. id
  State.put(q, name, concat(runs, ' ', max(1, #runs - MAX_RUNS + 1)))
end

-- Writes down what is remembered of the call. (One that writes slots has no number of a producer.)
local function note_call(q, producer, sequence, stored, places, n)
  if not q.are_slots then return Producers.note_call(q, producer, stored) end
  local place = places[#places]
  local is_new = not find(place, '-', 1, true)
  note_run(q, producer, sequence, is_new and match(stored, '^%d+') .. '-' .. spell(n) .. '-' .. place or place)
end

local MOST_OFFSET = 256
local MOST_STATE = 64 -- letters of how far a schedule is

local MOST_ASKED = 1300 -- bytes of a name and a note
local ASKED = '^\31[\30!-~\128-\255]+\31[\30!-~\128-\255]*$'

-- Reads who asked for a call, behind its number: "\31by\31note", where '\30' stands for a blank.
local function read_asked(q, sequence)
  local number, keep, asked = match(sequence, '^(%d+)|(%d+)(\31.+)$')
  if not asked then return nil end
  if #asked > MOST_ASKED or not find(asked, ASKED) then refuse_sequence() end
  q.asked = gsub(asked, '\30', ' ')
  return number, keep
end

-- Says whether the call was done before, or may not be done. Returns an answer, or what to remember of a bulk write.
local function check_sequence(q, producer, kind, sequence)
  if producer == '-' then
    read_asked(q, sequence)
    return nil
  end
  local answer, offset
  if kind == 'p:' then
    local number, keep = match(sequence, '^(%d+)|(%d+)$')
    if not number then number, keep = read_asked(q, sequence) end
    if not number or #number > MOST_DIGITS or #keep > MOST_DIGITS then refuse_sequence() end
    answer = Producers.check_call(q, number, keep + 0, q.values[PRODUCER])
  elseif kind == 'S:' then
    local expected, following = match(sequence, '^=([^=]*)=(%d[%w._-]*)$')
    if not expected or #following > MOST_STATE then refuse_sequence() end
    return check_slot(q, producer, expected, following)
  elseif kind == 'o:' and #sequence <= MOST_OFFSET then
    answer, offset = Producers.check_offset(q, producer, sequence)
  else
    refuse_sequence()
  end
  local was_done = answer and (answer[1] == 'OK' or answer[1] == 'COUNTED')
  if was_done then Producers.touch(q, q.values[LAST]) end
  return answer, offset
end

-- Tells why nothing is stored. (What was forgotten is noted.)
local function refuse(q, answer)
  Shares.save(q.keys[META], q)
  return answer
end

-- The parts of the head. (The last one is how the field of the producer begins.)
local HEAD = '^(%S+) (%d+) (%d+) ([46]) (%S*) (([%-oSp]:?).*)$'

local function refuse_head() Arguments.refuse('the head is none of these messages') end

-- @verb write: store messages, all or none. A repeated call of a producer changes nothing and returns the same ids.
-- KEYS[1..14]: the first 14 of a queue (base.lua), or the first 5 alone
-- KEYS[15..] streams: those that the shards of this call may choose from
-- ARGV[1] head: "epoch window count stride sequence producer": the caller's idea of the epoch; for how many ms dedup
--        keys are remembered; how many messages; 4 arguments for each, or 6 with headers or options; "number|ms for
--        which it may be repeated", behind it who asked for it (`read_asked`); or see `check_offset`; the field of
--        the call's producer or of its bulk write's partition ('-': none), which may have any letters. Of slots the
--        sequence is "=how far the schedule is=how far it is then", the field is the schedule's, and delays are times
--        in ms
-- ARGV[2..] messages: of each: shard (positions of its streams), shard key, tag, payload, and with 6 headers and
-- options
-- Reply: {'OK', "ms|n|a,b"}; with 'ALL' if the next call of the caller shall declare all keys
--        | {'EPOCH'} | {'STALE'} | {'FULL', name of the bound, "number:used,..."
--        of the messages that have no place in it, its size, how much of it is used, ms until there may be more room
--        ('': nobody knows)} | {'COUNTED', batch,
-- stored, mark}
--        | {'FORGOTTEN'} | {'SLOT', how far the schedule is}
--        | {'TAKEN', "number:id,..."}: messages whose unique keys others have, with their ids ('': one of this call);
--        and those that must be known and are not ('-')
--        Of each message its place if it is new, else its id: new ids are ms-(n+1)-place, ms-(n+2)-place, ...
function verbs.write(KEYS, ARGV)
  if not call then begin() end
  local epoch, window, count, stride, sequence, producer, kind = match(ARGV[1] or '', HEAD)
  if not epoch or #window > MOST_DIGITS or #producer > MOST_KEY then refuse_head() end
  count, stride = count + 0, stride + 0
  if count * stride ~= #ARGV - 1 or count > MOST_MESSAGES then refuse_head() end
  local q = look_of_write(KEYS, ARGV, producer, count, stride)
  -- Also to a repetition: the caller makes the call again with the same number, which finds what a first try stored.
  if not q or q.rules.epoch ~= epoch then return {'EPOCH'} end
  if q.rules.journal > 0 then Arguments.check_key(q.keys, JOURNAL) end
  local answer, offset = check_sequence(q, producer, kind, sequence)
  if answer then return answer end
  local ms, number = match(q.values[LAST], '^(%d+)-(%d+)$')
  local before = number + 0
  local forgets, is_left
  -- Calls follow each other without a gap in their numbers, so one in 32 messages begins among the first `count` of 32.
  if before % 32 < count or q.odd.forget then forgets, is_left = note_forgetting(q) end
  local options, keyed = NONE, 0
  if stride == 6 then options, keyed = all_options(q, ARGV, count) end
  if count > 1 then check_shards(q, ARGV, stride, options) end
  if forgets or keyed > 0 or offset then look_at_keys(q, keyed, offset, forgets) end -- before anything is forgotten
  answer = check_messages(q, ARGV, count, stride, options, keyed)
  if answer then return refuse(q, answer) end
  -- One look for all. (With parents the overflows are the children's, which no account names.)
  if count > 1 and q.behind > 0 and not q.rules.parents then load_tails(q) end
  -- A clock that was set back makes no id smaller: XADD would refuse it, and a cursor would have passed it.
  if q.now > ms + 0 then ms = spell(q.now) end
  local places, n = store_all(q, ARGV, count, stride, ms, before, options, keyed, window + 0)
  local stored = ms .. '|' .. number .. '|' .. (count == 1 and places[1] or concat(places, ','))
  State.put(q, 'last', ms .. '-' .. spell(n))
  note_call(q, producer, sequence, stored, places, n)
  close_write(q, producer, offset)
  -- Behind all else, since nothing depends on it: a later call forgets the rest.
  if forgets then
    forget_some(q)
    Shares.save(KEYS[META], q)
  end
  if q.rules.journal > 0 then note_written(q, ARGV, ms .. '|' .. number .. '|', places, stride, options) end
  return {'OK', stored, is_left and 'ALL' or nil}
end
