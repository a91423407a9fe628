-- The workers, and what was done in each of the last minutes, as workers say. Its verbs are beat, workers and history.
--   workers    a worker's id -> "heard|end|slots|busy|...", by the server's clock; what follows only clients read
--              (shardq/protocol/beats.py). '0' before the time: the journal has it not, or has that it was given up
--   minutes    'm' and a minute mod 480 -> "minute|workers|slots|busy|...": what the queue had at its begin;
--              'k' and a minute mod 60 -> "minute|task=done,failed,ms,buckets;...": what was done of each task;
--              'told' -> "minute|when": who was asked for the numbers of a minute, 0 if they are there
-- Names in these texts are written with '%' where they have other letters (`name`): so none ends a part of a text.
local MINUTE = 60000 -- ms
local KEPT = 480 -- minutes whose numbers are kept
local KEPT_TASKS = 60 -- minutes whose tasks are kept
local MAX_WORKERS = 10000
local SILENT = 3600000 -- ms without a beat, after which a worker is dropped
local GONE = 30000 -- ms without a beat, after which it does not count as working
local LOOKED_AT = 2 -- other workers that a beat looks at, and
local ONE_BEAT_IN = 8 -- only one beat in eight does: the look takes as long as all else
local CANDIDATES = 5 -- if there are too many, the one that was silent longest goes
local SAMPLE = 256 -- workers that are looked at for how many there are; of more it is an estimate
local ANSWER_AWAITED = 2000 -- ms in which the numbers of a minute are awaited of the worker that was asked for them
local MAX_TASKS = 24 -- that a minute has apart
local OTHER = 'other' -- the sum of the others
local LARGEST_SUM = 99999999999999
local LARGEST_NAME = 96 -- bytes of a task's name
local LARGEST_ROW = 1024 -- bytes of a worker's row
local LARGEST_MINUTE = 16384 -- bytes of a minute's tasks

-- Returns when a worker was heard, 0 if its row is none.
local function heard_of(row) return (match(row, '^(%d+)|') or 0) + 0 end

-- Says whether a row is of a worker that has left, or that the journal does not have: it said so, or it was given up,
-- or beats without a journal (then the row's time begins with '0').
local function has_left(row) return byte(row) == 48 or match(row, '^%d+|(.)') ~= '0' end -- 48 is '0'

-- Notes in the journal that a worker joined ('J') or left ('L'), as its row says. `said_by` is who says so; one that
-- was given up has been `silent` for this many ms.
local function tell_worker(KEYS, now, kind, id, row, said_by, silent)
  local values = {'worker', id, 'slots', match(row, '^[01]|(%d+)|') or '0'}
  if silent then values[5], values[6] = 'silent', format('%.3f', silent / 1000) end
  local rules = Rules.rules_of(call('HGET', KEYS[1], 'rules'))
  Journal.tell({[META] = KEYS[1], [JOURNAL] = KEYS[4]}, rules, now, said_by, kind, Journal.spell_values(values))
end

-- Notes that a worker joins with this beat, or leaves. `before` is its row until now, false if it has none.
local function tell_change(KEYS, now, id, row, before)
  local was_there = before and not has_left(before)
  local is_there = byte(row) == 48
  if is_there ~= was_there then tell_worker(KEYS, now, is_there and 'J' or 'L', id, row, id) end
end

-- Gives up a worker, which has left by that. So its row stays, but for the mark.
local function give_up(KEYS, now, id, row, said_by)
  if not KEYS[4] or has_left(row) then return end
  call('HSET', KEYS[2], id, '0' .. row)
  tell_worker(KEYS, now, 'L', id, match(row, '|(.*)$'), said_by, max(0, now - heard_of(row)))
end

-- Looks at a few workers by chance: gives up those that are gone, and drops those that were silent for long.
local function look_at_some(KEYS, now, said_by)
  local rows = call('HRANDFIELD', KEYS[2], LOOKED_AT, 'WITHVALUES')
  for at = 1, #rows, 2 do
    local id, row = rows[at], rows[at + 1]
    local silent = abs(now - heard_of(row))
    if id ~= '' and silent > GONE then give_up(KEYS, now, id, row, said_by) end
    if id ~= '' and silent > SILENT then call('HDEL', KEYS[2], id) end
  end
end

-- Makes room for a worker that is new: the one silent longest of a few goes.
local function make_room(KEYS, now, id)
  local key = KEYS[2]
  if call('HLEN', key) <= MAX_WORKERS + 1 then return end -- one is the sentinel
  local rows = call('HRANDFIELD', key, CANDIDATES, 'WITHVALUES')
  local silent, since, row
  for at = 1, #rows, 2 do
    local heard = heard_of(rows[at + 1])
    if rows[at] ~= '' and rows[at] ~= id and (not since or heard < since) then
      silent, since, row = rows[at], heard, rows[at + 1]
    end
  end
  if not silent then return end
  give_up(KEYS, now, silent, row, id)
  call('HDEL', key, silent)
end

-- Says whether the caller is to send the numbers of this minute with its next beat: it is the first one heard in it, or
-- those before it have not sent them. Each worker asks once a minute.
local function is_asked(key, now)
  local minute = floor(now / MINUTE)
  local known, told = match(call('HGET', key, 'told') or '', '^(%d+)|(%d+)$')
  if known and known + 0 == minute and (told == '0' or now - told < ANSWER_AWAITED) then return 0 end
  call('HSET', key, 'told', spell(minute) .. '|' .. spell(now))
  return 1
end

-- Says whether a minute that a caller names is this one or the one before.
local function is_recent(minute, now)
  local ago = floor(now / MINUTE) - minute
  return ago == 0 or ago == 1
end

-- Returns how many work now, their slots and their jobs, as one text.
local function spell_working(key, now)
  local rows = call('HRANDFIELD', key, SAMPLE, 'WITHVALUES')
  local workers, slots, busy, looked = 0, 0, 0, 0
  for at = 1, #rows, 2 do
    local heard, ended, its_slots, its_busy = match(rows[at + 1], '^(%d+)|([01])|(%d+)|(%d+%.?%d*)|')
    if rows[at] ~= '' then looked = looked + 1 end
    if heard and ended == '0' and abs(now - heard) < GONE then -- of a clock that was set back, too
      workers, slots, busy = workers + 1, slots + its_slots, busy + its_busy
    end
  end
  local scale = max(1, (call('HLEN', key) - 1) / max(1, looked))
  return format('%.0f|%.0f|%.2f', workers * scale, slots * scale, busy * scale)
end

-- Returns a sum as text. Nearly all large ones are new numbers, which `spell` writes more slowly.
local function spell_sum(sum)
  if sum < 4096 then return spell(sum) end
  return format('%d', min(sum, LARGEST_SUM))
end

-- Returns the row of a task among {name, done, failed, ms, counts by letter} in their order. A task without room, or
-- with a name that no worker writes, is among the others.
local function row_of(rows, name)
  if rows[name] then return rows[name] end
  if #rows >= MAX_TASKS or #name > LARGEST_NAME or not find(name, '^[%w%%._~-]*$') then name = OTHER end
  local row = rows[name]
  if not row then
    row = {name, 0, 0, 0, {}}
    rows[name] = row
    rows[#rows + 1] = row
  end
  return row
end

-- Adds to counts by letter.
local function count(counts, text)
  for letter, number in gmatch(text, '([a-p])(%d+)') do counts[letter] = (counts[letter] or 0) + number end
end

-- Adds up what a text says of each task. It may name a task several times; malformed parts are left out, and so is text
-- without ';' behind it: there TASK would try each way to divide digits, for hours. Each match takes long, so the first
-- three counts come with the rest of their task: most have no more.
local TASK = '^([^=;]*)=(%d+),(%d+),(%d+),([a-p]?)(%d*)([a-p]?)(%d*)([a-p]?)(%d*)([^;]*);()'

local function add_up(text)
  local rows = {}
  local at = 1
  local ends = #(match(text, '^.*;') or '')
  while at <= ends do
    local name, done, failed, ms, one, ones, two, twos, three, threes, others, behind = match(text, TASK, at)
    if name then
      local row = rows[name] or row_of(rows, name)
      row[2], row[3], row[4] = row[2] + done, row[3] + failed, row[4] + ms
      local counts = row[5]
      if ones ~= '' then counts[one] = (counts[one] or 0) + ones end
      if twos ~= '' then counts[two] = (counts[two] or 0) + twos end
      if threes ~= '' then counts[three] = (counts[three] or 0) + threes end
      if others ~= '' then count(counts, others) end
    end
    at = behind or find(text, ';', at, true) + 1
  end
  return rows
end

-- Returns the sums that a text of a minute's tasks has, as such a text.
local function fold(text)
  local parts = {}
  for at, row in ipairs(add_up(text)) do
    local counts = {}
    local size = 0
    row[5][''] = nil -- digits without a letter: they would lengthen another count
    for letter, number in pairs(row[5]) do
      size = size + 1
      counts[size] = letter .. spell_sum(number)
    end
    parts[at] = row[1] .. '=' .. spell_sum(row[2]) .. ',' .. spell_sum(row[3]) .. ',' .. spell_sum(row[4]) .. ','
      .. concat(counts) .. ';'
  end
  return concat(parts)
end

-- Adds what a worker did in a minute: "minute|task=done,failed,ms,buckets;...". It is written behind what others did,
-- and only a text that grows long is added up: to read and write sums takes far longer than all else.
local function add_work(key, text, now)
  local minute, work = match(text, '^(%d+)|(.*)$')
  if not is_recent(minute, now) then return end
  local field = 'k' .. minute % KEPT_TASKS
  local stored = call('HGET', key, field) or ''
  if sub(stored, 1, #minute + 1) ~= minute .. '|' then stored = minute .. '|' end
  if #stored + #work <= LARGEST_MINUTE then
    stored = stored .. work
  else
    stored = minute .. '|' .. fold(sub(stored, #minute + 2, LARGEST_MINUTE) .. work)
  end
  call('HSET', key, field, stored)
end

-- Adds up what was done in a minute, to which nobody adds any more: so an hour of them takes little memory.
local function fold_minute(key, minute)
  local field = 'k' .. minute % KEPT_TASKS
  local stored = call('HGET', key, field) or ''
  local beginning = spell(minute) .. '|'
  if sub(stored, 1, #beginning) ~= beginning or #stored > LARGEST_MINUTE then return end
  call('HSET', key, field, beginning .. fold(sub(stored, #beginning + 1)))
end

-- Writes down the numbers of a minute, unless they are there.
local function write_minute(workers, minutes, text, now)
  local minute, numbers = match(text, '^(%d+)|(.*)$')
  if not is_recent(minute, now) then return end
  local field = 'm' .. minute % KEPT
  if match(call('HGET', minutes, field) or '', '^%d+') == minute then return end
  call('HSET', minutes, field, minute .. '|' .. spell_working(workers, now) .. '|' .. numbers)
  if minute + 0 == floor(now / MINUTE) then call('HSET', minutes, 'told', minute .. '|0') end
  fold_minute(minutes, minute - 2)
end

local OF_A_WORKER = {'worker', 'worker_row'} -- the arguments of `beat`
local OF_A_MINUTE = {'work_or_none', 'numbers_or_none', 'flag'} -- those of a beat that tells more

-- Looks at them. Nearly all beats tell of the worker alone, and of those this looks itself: it takes a fifth of a beat.
local function check_beat(words)
  local id, row = words[1], words[2]
  if #words == 2 and id ~= '' and #id <= 256 and #row <= 1000 and find(row, '^[01]|%d+|%d+%.?%d*|') then return end
  Arguments.check(words, OF_A_WORKER, OF_A_MINUTE, 1)
end

-- @verb beat | allow-oom: note what a worker says of itself, and once a minute what it did. It goes with a call that
-- is made anyway. Also on a full server: who works there drains it.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] workers: the last report of its workers
-- KEYS[3] minutes: what it did and had in each of the last minutes
-- KEYS[4..] journal: what happened, where the caller knows that the queue keeps one
-- ARGV[1] worker: its id
-- ARGV[2] row: what it says, "end|slots|busy|..."
-- ARGV[3..] minute: of a beat that tells more, "minute|task=done,failed,ms,buckets;..." (what it did in a minute, '' =
--             nothing), "minute|number|..." (if an earlier beat asked for those of a minute, '' = none), and 1 if it is
--             the worker's first beat of a minute, else 0
-- Reply: "now|cancelled|asked", a text since Redis sends it faster than a list: how many messages were cancelled ('' =
--        none yet), 1 if the numbers of this minute are to come with the next beat, else 0 | "now" when there
--        is no such queue
function verbs.beat(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'workers', 'minutes'})
  if KEYS[4] then Arguments.check_keys({KEYS[1], KEYS[4]}, {'meta', 'journal'}) end
  check_beat(ARGV)
  local epoch, cancelled = unpack(call('HMGET', KEYS[1], 'epoch', 'cancelled')) -- at most 2: the fields
  local now = read_time()
  local heard = spell(now)
  if not epoch then return heard end
  local workers, minutes = KEYS[2], KEYS[3]
  if #ARGV > 2 then call('HLEN', minutes) end -- its type, before the effects
  local before = KEYS[4] and call('HGET', workers, ARGV[1])
  local told = KEYS[4] and '' or '0' -- what the journal is not told of here, the first beat that knows of it tells
  if call('HSET', workers, ARGV[1], told .. heard .. '|' .. ARGV[2]) == 1 then make_room(KEYS, now, ARGV[1]) end
  if KEYS[4] then tell_change(KEYS, now, ARGV[1], ARGV[2], before) end
  if now % ONE_BEAT_IN == 0 then look_at_some(KEYS, now, ARGV[1]) end
  if #ARGV == 2 then return heard .. '|' .. (cancelled or '') .. '|0' end -- the common case
  local work, numbers, first = unpack(ARGV, 3) -- at most 3: what it tells more
  if work ~= '' then add_work(minutes, work, now) end
  if numbers ~= '' then write_minute(workers, minutes, numbers, now) end
  return heard .. '|' .. (cancelled or '') .. '|' .. (first == '1' and is_asked(minutes, now) or 0)
end

-- @verb workers | no-writes: a page of the workers' last reports.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] workers: the last report of its workers
-- ARGV[1] cursor: where to continue, '0' to start
-- ARGV[2] count: about how many to look at
-- Reply: {now, cursor to continue from ('0' at the end), {id, "heard|end|slots|busy|...", ...}} | {now} when there
--        is no such queue
function verbs.workers(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'workers'})
  Arguments.check(ARGV, {'cursor', 'few'})
  local now = read_time()
  if not call('HGET', KEYS[1], 'epoch') then return {now} end
  local found = {}
  local page = call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
  for at = 1, #page[2], 2 do
    local id, row = page[2][at], page[2][at + 1]
    if id ~= '' and #id <= LARGEST_ROW then found[#found + 1], found[#found + 2] = id, sub(row, 1, LARGEST_ROW) end
  end
  return {now, page[1], found}
end

-- @verb history | no-writes: the numbers of some of the last minutes, and what was done of each task.
-- KEYS[1] meta: the state of the queue
-- KEYS[2] minutes: what it did and had in each of the last minutes
-- ARGV[1] ago: how many minutes before this one the last one is that is wanted
-- ARGV[2] count: how many minutes, at most 100
-- Reply: {now, {"minute|workers|slots|busy|..." or '', "minute|task=done,failed,ms,buckets;..." or '' for each minute,
--        the latest first}} | {now} when there is no such queue
function verbs.history(KEYS, ARGV)
  if not call then begin() end
  Arguments.check_keys(KEYS, {'meta', 'minutes'})
  Arguments.check(ARGV, {'count', 'few'})
  local now = read_time()
  if not call('HGET', KEYS[1], 'epoch') then return {now} end
  local fields = {'told'}
  local latest = floor(now / MINUTE) - ARGV[1]
  for minute = latest, latest - ARGV[2] + 1, -1 do
    fields[#fields + 1], fields[#fields + 2] = 'm' .. minute % KEPT, 'k' .. minute % KEPT_TASKS
  end
  local rows = call('HMGET', KEYS[2], unpack(fields)) -- at most 201: the minutes and their tasks
  local found = {}
  for at = 2, #fields do
    local minute = spell(latest - floor((at - 2) / 2))
    local row = rows[at] or ''
    found[at - 1] = match(row, '^%d+') == minute and sub(row, 1, LARGEST_MINUTE) or ''
  end
  return {now, found}
end
