-- Failures: groups of tries that failed, which say what fails, since when, and for whom. The hash `failures` has for
-- each group "task|class|reason" the text
--   retried|dead|first|last|newest|traced|second|slot|counts|codes|tenants
--     retried          tries after which the message is delivered again
--     dead             letters of the group that are there now
--     first, last      when its first and its last try failed, in ms
--     newest           the id of the last message
--     traced           when its traceback was stored, in ms; 0 = it has none
--     second           tries in it may be counted apart
--     slot             the number of the last 5 minutes in which one failed
--     counts           how many failed in that slot, and in those before it: "7,0,31"
--     codes            of the tenants of the last two slots, four letters each: ",0a3f;,0a3f"
--     tenants          how many are named, and some of them, each with its size before it: "26:globex4:acme"
-- and under 'trace|' and the group the frames of the newest traceback. The field '' has how many groups there are.
--   Under '+', that second, '|' and the group stands how many more tries failed in it and are delivered again, under
-- 'x' and so on how many more became letters. So where many fail each costs one HINCRBY: only of the first few of a
-- second the rest of the text is written. Each reader of the text adds what was counted apart.
-- A task is '' where a message is no call, a class where no error was named. The reason is `retry` (it is delivered
-- again), `dead` (it was the last delivery), `rejected`, or how it went wrong: see REASONS. A try is counted in the
-- call that gives its message back, or buries it; if a lease ended, in the read that delivers the message again. This
-- count never fails a call.
local SLOT = 300000 -- ms
local SLOTS = 12 -- counted of each group
local MAX_GROUPS = 200
local FIELDS = 4 -- of a group at most
local LOOKED_AT = 5 -- fields; the group seen longest ago goes for a new one
local MAX_TENANTS = 5 -- named of a group
local LONGEST_TENANT = 256 -- bytes of a name
local MAX_CODES = 320 -- letters: 64 tenants of a slot
local LONGEST_TASK = 800 -- bytes
local LONGEST_CLASS = 100
local LONGEST_TRACE = 2048
local TRACED_FOR = 60000 -- ms for which a traceback stays the newest
local NO_TRACE = '0'
local TOLD_WHOLE = 16 -- tries of a group in a second that are reported with more than their number
local SLACK = 1000 -- ms by which the id of an entry may be earlier than the call that adds it
local HEAD = '^(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d*)|(%d+)|(%d+)([%d,]*)|()'
local LAST = '^%d+|%d+|%d+|(%d+)|[^|]*|%d+|(%d*)|'
local BESIDE = '^[tracex+%d]+|([^|]*|[^|]*|[^|]*)$' -- the group beside which a field stands: that has fewer bars

-- How a try can fail besides what the verb says. (`dead` is what a worker rejects that tries no more.)
local REASONS = ' dead lease-ended time-limit process-died no-such-task cannot-decode '

-- Returns the name of the task that a message calls, '' if it is no call. `payload` is one that lies by itself.
function Failures.task_of(q, id, body, payload)
  local b = Messages.parse_body(body)
  local task = Messages.task_in(b.tag, payload or Messages.payload_of(q.keys[BODIES], id, body, b))
  return #task <= LONGEST_TASK and task or ''
end

-- How a class and a reason stand with an error: "class", or "class reason" where that is no other.
function Failures.spell_kind(class, reason) return reason == '' and class or class .. ' ' .. reason end

-- Returns the name of a group, and the kind of the error, for a try that failed in the usual way if it names no other.
local function name_group(task, class, reason, usual)
  if reason == 'dead' and usual == 'retry' then reason = '' end
  return {concat({task, class, reason ~= '' and reason or usual}, '|'), Failures.spell_kind(class, reason)}
end

-- Texts that callers sent for tries: many send the same.
local known_tries = {}
local known_bytes = 0

-- Reads what a caller says of a try that failed: "task|class|reason", and behind the end of that line the frames of a
-- traceback. A task '?' is to be looked up. Nil if it says nothing; malformed parts are left out.
function Failures.read_try(text)
  if text == '' then return nil end
  local known = known_tries[text]
  if known then return known end
  local task, class, reason, trace = match(text, '^([^|]*)|([^| %c]*)|([%l-]*)\n?(.*)$')
  if not task then return {class = '', reason = '', trace = ''} end
  local is_known = #task <= LONGEST_TASK and find(task, '^[%w_.:/<>\128-\255-]*$')
  local try = {
    class = #class <= LONGEST_CLASS and class or '',
    reason = find(REASONS, ' ' .. reason .. ' ', 1, true) and reason or '',
    trace = #trace <= LONGEST_TRACE and trace or '',
  }
  if not is_known then return try end
  for _, usual in ipairs({'retry', 'dead', 'rejected'}) do
    try[usual] = name_group(task, try.class, try.reason, usual)
  end
  if trace == '' then known_bytes = keep(known_tries, known_bytes, text, try) end
  return try
end

local SAYS_NOTHING = {class = '', reason = ''}

-- Returns the group of a try, and the kind of its error. `try` is nil if nobody said how it failed.
function Failures.group_of(q, try, usual, id, body, payload)
  try = try or SAYS_NOTHING
  local named = try[usual] or name_group(Failures.task_of(q, id, body, payload), try.class, try.reason, usual)
  return named[1], named[2]
end

function Failures.read_kind(kind) return match(kind, '^(%S*) ?(.*)$') end

local function note_of(q, group)
  local failed = q.failed
  if not failed then
    failed = {nil}
    q.failed = failed
    q.ended = q.ended or {} -- a read that has any looks for these, too
  end
  local noted = failed[group]
  if not noted then
    noted = {tries = 0, retried = 0, dead = 0, owners = {nil}}
    failed[group], failed[#failed + 1] = noted, group
  end
  return noted
end

-- Notes a try of an account's message, and whether that is delivered again.
function Failures.note_try(q, group, is_again, a, id, key, body, trace)
  local noted = note_of(q, group)
  noted.tries = noted.tries + 1
  if is_again then noted.retried = noted.retried + 1 end
  noted.owners[#noted.owners + 1] = a.name
  noted.id, noted.key, noted.body = id, key, body
  if trace ~= '' then noted.trace = trace end
  State.count_up(q, 'failed', 1)
end

-- Notes a letter that is there now.
function Failures.note_letter(q, group)
  local noted = note_of(q, group)
  noted.dead = noted.dead + 1
end

-- Notes a letter that is gone. (Its entry tells since when it was there: the group may have been dropped since then.)
function Failures.note_gone(q, group, entry_id)
  local noted = note_of(q, group)
  noted.gone = noted.gone or {}
  noted.gone[#noted.gone + 1] = match(entry_id, '^%d+') + 0
end

-- Moves the counts on to another slot, `by` slots later.
local function move_counts(counts, by)
  if by >= SLOTS then return '' end
  local parts = {rep(',0', by - 1)}
  for number in gmatch(counts, '%d+') do
    if #parts > SLOTS - by then break end
    parts[#parts + 1] = ',' .. number
  end
  return concat(parts)
end

-- Leaves out the two that were named first, once there are enough: so those of the last minutes are named.
local function forget_tenants(known, tenants)
  if known < MAX_TENANTS then return known, tenants end
  local at = 1
  for _ = 1, 2 do
    local size, from = match(tenants, '^(%d+):()', at)
    if not size then return 0, '' end
    at = from + size
  end
  return known - 2, sub(tenants, at)
end

-- Reads what comes behind the counts: "codes;codes before|tenants". (A pattern would look at each letter many times.)
local function read_rest(text, at)
  local middle = at and find(text, ';', at, true)
  local ends = middle and find(text, '|', middle, true)
  local known = ends and tonumber(sub(text, ends + 1, ends + 1))
  if not known then return nil end
  return sub(text, at, middle - 1), sub(text, middle + 1, ends - 1), known, sub(text, ends + 2)
end

local function read_group(q, text)
  local retried, dead, first, last, newest, traced, second, slot, count, before, at = match(text or '', HEAD)
  local codes, codes_before, known, tenants = read_rest(text, at)
  if not codes then
    return {
      retried = 0, dead = 0, first = spell(q.now), last = '', newest = '', traced = NO_TRACE, second = '',
      slot = floor(q.now / SLOT), count = 0, before = '', codes = '', codes_before = '', known = 0, tenants = '',
    }
  end
  return {
    retried = retried + 0, dead = dead + 0, first = first, last = last, newest = newest, traced = traced,
    second = second, slot = slot + 0, count = count + 0, before = before, codes = codes, codes_before = codes_before,
    known = known, tenants = tenants,
  }
end

-- Moves the counts of a group on to this slot. (Where the clock was set back by more than a slot, the counts belong to
-- no known time.)
local function move_group(q, g)
  local now = floor(q.now / SLOT)
  local by = now - g.slot
  if by < -1 then by = SLOTS end
  if by <= 0 then return end
  g.slot, g.count, g.before = now, 0, move_counts(g.count .. g.before, by)
  g.codes, g.codes_before = '', by == 1 and g.codes or ''
  g.known, g.tenants = forget_tenants(g.known, g.tenants)
end

local function spell_group(g)
  return concat({
    g.retried, g.dead, g.first, g.last, g.newest, g.traced, g.second, g.slot, g.count .. g.before,
    g.codes .. ';' .. g.codes_before, g.known .. g.tenants,
  }, '|')
end

local function add_owner(g, owner)
  if owner == '' then return end
  local code = ',' .. sub(sha1hex(owner), 1, 4)
  if #g.codes < MAX_CODES and not find(g.codes, code, 1, true) then g.codes = g.codes .. code end
  if g.known == MAX_TENANTS or #owner > LONGEST_TENANT then return end
  local named = #owner .. ':' .. owner
  if find(g.tenants, named, 1, true) then return end
  g.known, g.tenants = g.known + 1, g.tenants .. named
end

-- Returns the fields in which tries of a second are counted apart: those that are delivered again, and letters.
local function apart_fields(second, group) return '+' .. second .. '|' .. group, 'x' .. second .. '|' .. group end

-- Adds what was counted apart, and forgets it there.
local function add_apart(key, group, g)
  if g.second == '' then return end
  local again, letters = apart_fields(g.second, group)
  local counts = call('HMGET', key, again, letters)
  local retried = tonumber(counts[1] or 0) or 0
  local dead = tonumber(counts[2] or 0) or 0
  g.retried, g.dead, g.count, g.second = g.retried + retried, g.dead + dead, g.count + retried + dead, ''
  if counts[1] or counts[2] then call('HDEL', key, again, letters) end
end

-- Adds what this call has noted to a group. Returns a traceback to store, nil for none.
local function add_noted(q, key, group, g, noted)
  if noted.apart ~= g.second or not noted.apart then add_apart(key, group, g) end
  move_group(q, g)
  if noted.apart then
    g.second = noted.apart
  else
    g.retried, g.dead, g.count = g.retried + noted.retried, g.dead + noted.dead, g.count + noted.tries
  end
  for _, ms in ipairs(noted.gone or {}) do
    if ms >= g.first - SLACK then g.dead = max(0, g.dead - 1) end
  end
  if noted.tries + noted.dead > 0 then g.last = spell(q.now) end
  for _, owner in ipairs(noted.owners) do add_owner(g, owner) end
  if noted.id then g.newest = Messages.message_id(noted.id, match(noted.body, '^%w+') or '', noted.key) end
  if not noted.trace or abs(q.now - g.traced) < TRACED_FOR then return nil end
  g.traced = spell(q.now)
  return noted.trace
end

-- Drops the group seen longest ago of some by chance, but not the one that comes, and says whether it did. A field that
-- is no group goes first.
local function drop_group(key, coming)
  local names = {nil}
  local fields = {nil}
  for _, field in ipairs(call('HRANDFIELD', key, LOOKED_AT)) do
    local name = match(field, BESIDE) or field
    if field ~= '' and name ~= coming then names[#names + 1], fields[#fields + 1] = name, field end
  end
  if #names == 0 then return false end
  local texts = call('HMGET', key, unpack(names)) -- at most 5: those that are looked at
  local dropped, oldest, its_second
  for at, text in ipairs(texts) do
    local last, second = match(text or '', LAST)
    last = (last or 0) + 0
    if not oldest or last < oldest then dropped, oldest, its_second = at, last, second end
  end
  local group = names[dropped]
  local was_one = call('HDEL', key, group) == 1
  call('HDEL', key, 'trace|' .. group, fields[dropped], apart_fields(its_second or '', group))
  return was_one
end

-- How many groups there are: as it is written, or as the number of fields says, where that was changed by hand.
local function count_groups(key)
  local fields = call('HLEN', key) - 1
  local known = tonumber(match(call('HGET', key, '') or '', '^%d+$') or 0)
  return max(ceil(fields / FIELDS), min(known, fields))
end

local function save_new(q, key, group, noted)
  local g = read_group(q)
  local trace = add_noted(q, key, group, g, noted)
  local groups = count_groups(key)
  for _ = 1, 2 do -- a second time where there are too many
    if groups >= MAX_GROUPS and drop_group(key, group) then groups = groups - 1 end
  end
  call('HSET', key, group, spell_group(g), '', groups + 1)
  if trace then call('HSET', key, 'trace|' .. group, trace) end
end

-- Counts tries apart, if they all ended in the same way and nothing more is to be recorded of them. Says whether the
-- text of the group is to be written, too.
local function count_apart(q, group, noted, second)
  local tries = noted.tries
  if noted.gone or noted.trace or tries == 0 or max(noted.retried, noted.dead) ~= tries then return true end
  if min(noted.retried, noted.dead) > 0 then return true end
  local again, letters = apart_fields(second, group)
  local counted = pcall_redis('HINCRBY', q.keys[FAILURES], noted.dead > 0 and letters or again, tries)
  if type(counted) ~= 'number' then return true end -- another program wrote something else there
  noted.apart = second
  return counted - tries < TOLD_WHOLE
end

-- Counts these new groups as a whole: a field that is counted apart of a group without a text would count as no group,
-- and go for another one that comes.
local function join_new(q, key, groups)
  local apart = {nil}
  for _, group in ipairs(groups) do
    local noted = q.failed[group]
    if noted.apart then
      local again, letters = apart_fields(noted.apart, group)
      apart[#apart + 1], noted.apart = noted.dead > 0 and letters or again, nil
    end
  end
  if #apart > 0 then call('HDEL', key, unpack(apart)) end -- at most 500: one of each group
end

-- Writes down what some groups of this call are from now on. New ones come last, since others may be dropped for them.
local function save_some(q, names, from, upto)
  local key = q.keys[FAILURES]
  local texts = pcall_redis('HMGET', key, unpack(names, from, upto)) -- at most 500: those of `save`
  if texts.err then return end -- another program made a key of another type
  local words, is_new = {}, {}
  for at, text in ipairs(texts) do
    local group = names[from + at - 1]
    local noted = q.failed[group]
    if text then
      local g = read_group(q, text)
      local trace = add_noted(q, key, group, g, noted)
      words[#words + 1], words[#words + 2] = group, spell_group(g)
      if trace then words[#words + 1], words[#words + 2] = 'trace|' .. group, trace end
    elseif noted.tries + noted.dead > 0 then
      is_new[#is_new + 1] = group
    end
  end
  if #words > 0 then pcall_redis('HSET', key, unpack(words)) end -- at most 2,000: four for each of the groups
  join_new(q, key, is_new)
  for _, group in ipairs(is_new) do save_new(q, key, group, q.failed[group]) end
end

-- Writes down what this call has noted.
function Failures.save(q)
  local failed = q.failed
  local second = spell(floor(q.now / 1000))
  local names = {nil}
  for _, group in ipairs(failed) do
    if count_apart(q, group, failed[group], second) then names[#names + 1] = group end
  end
  for from = 1, #names, 500 do save_some(q, names, from, min(#names, from + 499)) end
end

local MAX_FIELDS = FIELDS * MAX_GROUPS + 1

-- @verb failures | no-writes: what fails, in groups.
-- KEYS[1] meta: whether there is a queue
-- KEYS[2] failures: the groups, and their tracebacks
-- KEYS[3] dead: dead letters
-- Reply: {now, how many dead letters there are, {field, text, ...}} | {now} when there is no such queue
function verbs.failures(KEYS)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'failures', 'dead'})
  local now = read_time()
  if not call('HGET', KEYS[1], 'epoch') then return {now} end
  -- More than there may be has another program written: then some by chance.
  local is_bounded = call('HLEN', KEYS[2]) <= MAX_FIELDS
  local found = is_bounded and call('HGETALL', KEYS[2]) or call('HRANDFIELD', KEYS[2], MAX_FIELDS, 'WITHVALUES')
  return {now, call('XLEN', KEYS[3]), found}
end
