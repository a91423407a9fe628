-- The verb write: store messages, all or none.

-- Reads the options of a message: "delay in ms|ms to its deadline|dedup key", with '@' in place of the second '|' if
-- the dedup key has a scope of its own; with a unique key it is "delay|ms to its deadline/<mode><length of the unique
-- key>|id that the key is taken from|unique key and dedup key".
local function read_options(q, text, shard_key)
  local option = {unique_key = '', dedup_key = ''}
  local after, lasts, mode, length, takes_from, keys = match(text, '^(%d*)|(%d*)/(%a)(%d+)|([^|]*)|(.*)$')
  local separator, dedup_key
  if mode then
    option.unique_key, dedup_key = sub(keys, 1, length), sub(keys, length + 1)
    option.mode, option.takes_from = mode, takes_from
    option.unique_key = Producers.scope_key(q, shard_key, option.unique_key)
  else
    after, lasts, separator, dedup_key = match(text, '^(%d*)|(%d*)([|@])(.*)$')
  end
  if dedup_key ~= '' then
    option.dedup_key = separator == '@' and 'g:' .. dedup_key or 'k:' .. Producers.scope_key(q, shard_key, dedup_key)
  end
  option.after, option.delay, option.attributes = after, tonumber(after) or 0, ''
  if lasts ~= '' then option.attributes = ' x' .. spell(q.now + lasts) end
  if option.delay > 0 then option.attributes = option.attributes .. ' t' .. spell(q.now + option.delay) end
  return option
end

-- Notes which messages cannot be written since another one has their unique key, or an earlier one of the call has it.
-- With 'e' they are repetitions of that one. Returns those that are not, as "number:message id".
local function find_conflicts(q, options, repeated, count)
  local conflicts, first = {}, {}
  for i = 1, count do
    local option = options[i]
    local key = option and option.unique_key ~= '' and not repeated[i] and option.unique_key
    local holder = key and Unique.find_unique(q, key)
    if holder and holder == option.takes_from then holder = nil end
    if key and (holder or first[key]) then
      if option.mode == 'e' then
        repeated[i], option.holder, option.same_as = true, holder, first[key]
      else
        conflicts[#conflicts + 1] = i .. ':' .. (holder or '')
      end
    elseif key then
      first[key] = i
    end
  end
  return conflicts
end

-- Finds which messages are not to be written. Returns those that an earlier one stands for, by their index, how many
-- they are, and those that cannot be written.
local function find_earlier(q, options, count)
  local repeated, known = {}, 0
  for i, option in pairs(options) do
    if option.dedup_key ~= '' and Unique.find_duplicate(q, option.dedup_key) then repeated[i] = true end
  end
  local conflicts = find_conflicts(q, options, repeated, count)
  for _ in pairs(repeated) do known = known + 1 end
  return repeated, known, conflicts
end

-- Returns the id of the earlier message that stands for one of a call, nil if there is none.
local function find_standing(q, option, window)
  local id = option.dedup_key ~= '' and Unique.find_duplicate(q, option.dedup_key)
  if id then return id end
  id = option.holder or q.unique_ids[option.same_as]
  if id and option.dedup_key ~= '' then Unique.save_dedup_key(q, option.dedup_key, id, window) end
  return id
end

-- Looks at all that must be known: the state, the producer's last call, the streams, and the accounts.
local function look_of_write(KEYS, ARGV, lane, count, stride)
  local fields = State.fields_of_write(lane, KEYS, 12)
  local first = #fields
  local n, seen = first, {}
  for at = 3, 2 + (count - 1) * stride + 1, stride do
    local key = ARGV[at]
    if not seen[key] then
      n = n + 1
      seen[key], fields[n] = true, 't:' .. key
    end
  end
  local q = State.open_call(KEYS, fields, 11)
  if not q then return nil end
  local v, lengths = q.values, {}
  for at = State.OF_WRITE + 1, first do lengths[at - State.OF_WRITE] = tonumber(v[at] or 0) end
  q.lengths, q.is_wide, q.grown, q.ready = lengths, #lengths > 255, {}, v[15]
  if q.rules.window == 0 then return q end
  if q.rules.parents then
    local owners = {}
    for at = first + 1, n do owners[#owners + 1] = Rules.owner_of(q.rules, sub(fields[at], 3)) end
    Accounts.load_accounts(q, owners)
  else
    for at = first + 1, n do Accounts.meet(q, sub(fields[at], 3), v[at]) end
  end
  return q
end

-- Returns the numbers of the messages that have no room in the backlog of their shard key: "1,5".
local function beyond_backlog(q, ARGV, count, stride, repeated)
  local more, beyond = {}, {}
  for i = 1, count do
    local name = Rules.owner_of(q.rules, ARGV[3 + (i - 1) * stride])
    local a = q.accounts[name]
    local number = more[name] or a.taken + a.behind + a.delayed
    if not repeated[i] then number = number + 1 end
    if not repeated[i] and number > q.rules.backlog then beyond[#beyond + 1] = i end
    more[name] = number
  end
  return concat(beyond, ',')
end

-- Says which bound of the queue the call would break, nil if none.
local function broken_bound(q, ARGV, count, stride, repeated, known, keyed)
  local rules = q.rules
  if rules.max_len > 0 then
    local adopted = call('HGET', q.keys[META], 'adopted')
    if q.values[13] + adopted - q.gone + count - known > rules.max_len then return {'FULL', 'max_len'} end
  end
  if keyed > known then
    Unique.forget_keys(q, 2 * keyed + 4)
    if call('ZCARD', q.keys[DEDUP_INDEX]) - 1 + keyed - known > rules.max_dedup then return {'FULL', 'max_dedup'} end
  end
  if rules.backlog > 0 and rules.window > 0 then
    local beyond = beyond_backlog(q, ARGV, count, stride, repeated)
    if beyond ~= '' then return {'FULL', 'max_backlog', beyond} end
  end
end

-- Every 32 messages some of what has ended is forgotten: more than comes in, also when nothing more of its kind comes.
local function forget_some(q, before, count)
  if before % 32 >= count then return end
  Producers.forget_ended(q, q.keys[PRODUCERS], q.keys[META], 64)
  Producers.forget_ended(q, q.keys[BULK_OFFSETS], q.keys[DEDUP], 64)
  Unique.forget_keys(q, 64)
end

-- A message that lies by itself: it has a unique key, or is not yet due.
local function store_apart(q, m, id)
  local a = Accounts.find_account(q, Rules.owner_of(q.rules, m.key))
  local flags = m.unique_key ~= '' and 'u' or ''
  add(q, 'kept', id, Messages.body_of_message('d', m))
  if m.unique_key ~= '' then
    local full_id = id .. '-d'
    Unique.save_unique(q, m.unique_key, id, 'w', full_id)
    call('ZADD', q.keys[DEDUP_INDEX], spell(q.now + Unique.FIRST_LOOK), 'u:' .. m.unique_key)
    q.unique_ids[m.index] = full_id
  end
  if m.delay > 0 then
    Due.put_off(q, a, m.key, q.now + m.delay, 'd', id, '0' .. flags)
    if m.delay < Notifications.SOON then Notifications.notify_reader(q) end
  else
    Waiting.wait_behind(q, a, m.key, id .. Messages.REFERENCE)
    Notifications.notify_reader(q)
  end
  return 'd'
end

-- Stores one message. Returns the last part of its id.
local function store(q, m, id)
  if m.delay > 0 or m.unique_key ~= '' then return store_apart(q, m, id) end
  local place
  if q.rules.window == 0 then
    place = Streams.append(q, id, 'k', m)
  else
    local a = q.accounts[Rules.owner_of(q.rules, m.key)]
    if Streams.goes_to_stream(q, a) then
      a.taken = a.taken + 1
      place = Streams.append(q, id, 'K', m)
    else
      Waiting.wait_behind(q, a, m.key, id .. '|' .. Messages.spell_tail(m.attributes, '', m.tag, m.headers, m.payload))
      place = 'o'
    end
  end
  Notifications.notify_reader(q, place ~= 'o' and place)
  return place
end

-- Reads one message into the one table `m`.
local function read_message(ARGV, at, stride, m, option)
  m.shard, m.key, m.tag, m.payload = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  m.headers = stride == 6 and ARGV[at + 4] or ''
  if option then
    m.delay, m.attributes, m.unique_key = option.delay, option.attributes, option.unique_key
  else
    m.delay, m.attributes, m.unique_key = 0, '', ''
  end
end

-- Stores the messages. Returns for each its place if it is new, else its id; and the number of the last one.
local function store_all(q, ARGV, count, stride, ms, n, options, keyed, window)
  local places, m = {}, {
    shard = '', key = '', tag = '', payload = '', headers = '', attributes = '', unique_key = '', delay = 0,
  }
  q.unique_ids = {}
  for i = 1, count do
    local option = options[i]
    local place = option and keyed > 0 and find_standing(q, option, window)
    if not place then
      n = n + 1
      local id = ms .. '-' .. format('%d', n)
      read_message(ARGV, 2 + (i - 1) * stride, stride, m, option)
      m.index = i
      place = store(q, m, id)
      if option and option.dedup_key ~= '' then
        Unique.save_dedup_key(q, option.dedup_key, Messages.message_id(id, place, m.key), window)
      end
    end
    places[i] = place
  end
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

-- Appends to the journal that messages were written, without those that an earlier one stands for.
local function note_written(q, ARGV, prefix, places, stride, options)
  local kept, keys, lengths, dues = {}, {}, {}, {}
  local has_dues = false
  for i, place in ipairs(places) do
    if not find(place, '-', 1, true) then
      local at, option = #kept + 1, options[i]
      local key = ARGV[3 + (i - 1) * stride]
      kept[at], keys[at], lengths[at], dues[at] = place, key, #key, ''
      if option and option.after ~= '' then dues[at], has_dues = spell(q.now + option.delay), true end
    end
  end
  if #kept == 0 then return end
  Journal.append_events(q, #kept, concat({
    rep('w', #kept), prefix .. concat(kept, ','), concat(lengths, ','), '', has_dues and concat(dues, ',') or '', '',
    concat(keys),
  }, '\n'))
end

local function close_write(q)
  for position in pairs(q.grown) do State.put(q, q.keys[q.fixed + position], q.lengths[position]) end
  if q.ready ~= q.values[15] then State.put(q, 'ready', q.ready) end
  Turns.schedule_all(q)
  Waiting.save_children(q)
  Accounts.save_accounts(q)
  State.put_counters(q)
  if q.has_idle then State.put(q, 'idle', 1) end
  State.save_state(q)
  if q.dirty or q.lists then
    Overflow.save_blocks(q)
    Turns.flush_turns(q)
    Due.save_due(q)
  end
end

-- Says whether the call was done before, or may not be done. Returns an answer, or what to remember of a bulk write.
local function check_sequence(q, lane, sequence)
  if lane == '-' then return nil end
  local number, keep = match(sequence, '^(%d+)|(%d+)$')
  local answer, offset
  if number then
    answer, q.lane_ends = Producers.check_lane(q, lane, number + 0, keep + 0, q.values[State.OF_WRITE])
    q.lane_number = number
  else
    answer, offset = Producers.check_offset(q, lane, sequence)
  end
  -- A time is written that is there already: WAIT waits for what its own connection wrote last.
  if answer and (answer[1] == 'OK' or answer[1] == 'COUNTED') then call('HSET', q.keys[META], 'ms', q.values[14]) end
  return answer, offset
end

-- @verb write: store messages, all or none. A repeated call of a producer changes nothing and returns the same ids.
-- KEYS[1..11]: the first 11 of a queue (base.lua)
-- KEYS[12..] streams: those that the shards of this call may choose from
-- ARGV[1] head: "epoch lane sequence window keyed count stride": the caller's idea of the epoch; the field of its lane
-- or of its bulk
--         write's partition ('-': none); "number|ms for which it may be repeated", or see `check_offset`; for how many
--         ms dedup keys
--         are remembered; how many keys the messages have; how many messages; 4 arguments for each, or 6 with headers
--         or options
-- ARGV[2..] messages: of each: shard (positions of its streams), shard key, tag, payload, and with 6 headers and
-- options
-- Reply: {'OK', "ms|n|a,b"} | {'EPOCH'} | {'STALE'} | {'FULL', name of the bound, messages "1,5"} | {'COUNTED', batch,
-- stored, mark}
--        | {'FORGOTTEN'} | {'TAKEN', "number:id,..."}: messages whose unique keys others have, with their ids ('': one
--        of this call)
--        Of each message its place if it is new, else its id: new ids are ms-(n+1)-place, ms-(n+2)-place, ...
function verbs.write(KEYS, ARGV)
  if not call then begin() end
  local epoch, lane, sequence, window, keyed, count, stride =
    match(ARGV[1], '^(%S+) (%S+) (%S*) (%d+) (%d+) (%d+) (%d)$')
  keyed, count, stride = keyed + 0, count + 0, stride + 0
  local q = look_of_write(KEYS, ARGV, lane, count, stride)
  if not q or q.values[1] ~= epoch then return {'EPOCH'} end
  local answer, offset = check_sequence(q, lane, sequence)
  if answer then return answer end
  local options, repeated, known, conflicts = {}, {}, 0, nil
  for i = 1, stride == 6 and count or 0 do
    local text = ARGV[1 + i * 6]
    if text ~= '' then options[i] = read_options(q, text, ARGV[3 + (i - 1) * 6]) end
  end
  if keyed > 0 then
    repeated, known, conflicts = find_earlier(q, options, count)
    if #conflicts > 0 then return {'TAKEN', concat(conflicts, ',')} end
  end
  answer = broken_bound(q, ARGV, count, stride, repeated, known, keyed)
  if answer then return answer end
  local before, ms = q.values[13] + 0, q.values[14]
  forget_some(q, before, count)
  if count > 1 and q.behind > 0 and not q.rules.parents then load_tails(q) end
  if q.now > ms + 0 then ms = spell(q.now) end
  local places, n = store_all(q, ARGV, count, stride, ms, before, options, keyed, window + 0)
  local stored = ms .. '|' .. format('%d', before) .. '|' .. concat(places, ',')
  State.put(q, 'n', format('%d', n))
  State.put(q, 'ms', ms)
  if q.lane_ends then State.put(q, lane, q.lane_ends .. '|' .. q.lane_number .. '|' .. stored) end
  close_write(q)
  if offset then Producers.save_offset(q, offset) end
  if q.rules.journal > 0 then
    note_written(q, ARGV, ms .. '|' .. format('%d', before) .. '|', places, stride, options)
  end
  return {'OK', stored}
end
