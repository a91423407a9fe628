-- Ids that gateways write: dedup keys of the clients of one token, which stand for messages like those of other
-- writers. The hash `dedup` has 'g:', the token's name, ':' and the id as "end|message id|number"; 'i:', the token's
-- name, '|' and that number as the field of the id; 'i:' and the name as "first last", the numbers that the token uses;
-- and 'i:' alone as how many ids there are.
--   A token fills no bound that others need: its ids take no place in `max_dedup`, and its gateway says how many
--   numbers it has. Beyond, its own oldest id is forgotten. An id that ends or is released leaves its number unused
--   until the others have passed it.
local PASSED_AT_ONCE = 64

-- Says whether a field of `dedup` is an id.
function Ids.is_id(field) return sub(field, 1, 2) == 'g:' end

local function token_of(field) return match(field, '^g:([^:]*)') end

local function field_of_token(token) return 'i:' .. token end

local function field_of_number(token, number) return 'i:' .. token .. '|' .. number end

-- Returns how many ids there are.
function Ids.count(q) return max(0, tonumber(call('HGET', q.keys[DEDUP], 'i:') or 0) or 0) end

local function forget(q, fields, numbers)
  if #fields == 0 then return end
  call('HDEL', q.keys[DEDUP], unpack(fields)) -- at most 1,004: a release, or what has ended
  call('HDEL', q.keys[DEDUP], unpack(numbers)) -- at most 1,004: the same
  call('HINCRBY', q.keys[DEDUP], 'i:', -#fields)
end

-- Forgets ids; `texts` has what they stand for. Returns how many were remembered.
function Ids.forget(q, fields, texts)
  if #fields == 0 then return 0 end
  local known, numbers = {}, {}
  for at, field in ipairs(fields) do
    local number = match(texts[at] or '', '|(%d+)$')
    if number then
      known[#known + 1], numbers[#numbers + 1] = field, field_of_number(token_of(field), number)
    end
  end
  forget(q, known, numbers)
  call('ZREM', q.keys[DEDUP_INDEX], unpack(fields)) -- at most 1,004: a release, or what has ended
  return #known
end

-- Forgets the ids that have the oldest numbers of a token, until it has room for one more. A call passes few more of
-- them than it writes: where a gateway lets a token keep fewer than before, the next ones pass the rest.
local function pass_oldest(q, token, used, most)
  local numbers, ended, their = {}, {}, {}
  for number = used.first, min(used.last - most + 1, used.first + PASSED_AT_ONCE) do
    numbers[#numbers + 1] = field_of_number(token, spell(number))
  end
  local fields = call('HMGET', q.keys[DEDUP], unpack(numbers)) -- at most 65: `PASSED_AT_ONCE`
  for at, field in ipairs(fields) do
    if field then ended[#ended + 1], their[#their + 1] = field, numbers[at] end
  end
  forget(q, ended, their)
  if #ended > 0 then call('ZREM', q.keys[DEDUP_INDEX], unpack(ended)) end -- at most 65: the same
  used.first = used.first + #numbers
end

-- Returns the numbers that a token uses.
local function used_by(q, token)
  if not q.used_numbers then q.used_numbers = {} end
  local used = q.used_numbers[token]
  if not used then
    local first, last = match(call('HGET', q.keys[DEDUP], field_of_token(token)) or '', '^(%d+) (%d+)$')
    used = {first = (first or 1) + 0, last = (last or 0) + 0, new = 0}
    q.used_numbers[token] = used
  end
  return used
end

-- Lets an id stand for a message, and bounds the ids that its token keeps. `known` is what was known of the id, which
-- has ended.
function Ids.save(q, field, id, window, most, known)
  if known then Ids.forget(q, {field}, {known}) end
  local token = token_of(field)
  local used = used_by(q, token)
  if used.last - used.first + 1 >= most then pass_oldest(q, token, used, most) end
  used.last, used.new = used.last + 1, used.new + 1
  local number = spell(used.last)
  local ends = spell(q.now + window)
  call('HSET', q.keys[DEDUP], field, ends .. '|' .. id .. '|' .. number, field_of_number(token, number), field)
  call('ZADD', q.keys[DEDUP_INDEX], ends, field)
end

-- Writes down which numbers the tokens of a call use from now on.
function Ids.save_numbers(q)
  for token, used in pairs(q.used_numbers) do
    call('HSET', q.keys[DEDUP], field_of_token(token), spell(used.first) .. ' ' .. spell(used.last))
    call('HINCRBY', q.keys[DEDUP], 'i:', used.new)
  end
end
