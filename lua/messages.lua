-- A message as it is stored. In a stream it is an entry: 'K' (or 'k', if it is on no account), shard key, tag, payload,
-- and only where there are any, attributes under 'm' and headers under 'h'. Outside of a stream it is a body, a text:
-- "origin:size of the shard key:shard key" "size:attributes" "size:unique key" tag "size:headers" payload. The
-- attributes are " x<deadline ms> t<due ms> c<deliveries before a redrive>". The origin is the last part of the
-- message's id: the stream that it was written into, 'd' if it was stored by itself, 'o' if it waited in an overflow,
-- 'l' if it came from the legacy stream. A message's id is "ms-number-origin"; after an 'o' comes '.' and the shard
-- key, since nothing else leads to that overflow.
Messages.REFERENCE = '@' -- the tag of an entry or a record that says: the body lies by itself

local function quote_key(key)
  return (gsub(key, '[^%w_.~-]', function(letter) return format('%%%02X', byte(letter)) end))
end

-- Where an entry of the legacy stream lies now: its id is of other numbers than the queue's own, so it has a zero in
-- front.
function Messages.inner_id(id, origin) return origin == 'l' and '0' .. id or id end

function Messages.message_id(id, origin, key)
  if origin == 'l' then return sub(id, 2) .. '-l' end
  if origin == 'o' then return id .. '-o.' .. quote_key(key) end
  return id .. '-' .. origin
end

local function sized(text) return spell(#text) .. ':' .. text end

function Messages.spell_tail(attributes, unique_key, tag, headers, payload)
  if attributes == '' and unique_key == '' and headers == '' then return '0:0:' .. tag .. '0:' .. payload end
  return #attributes .. ':' .. attributes .. #unique_key .. ':' .. unique_key .. tag
    .. #headers .. ':' .. headers .. payload
end

function Messages.spell_body(origin, key, tail) return origin .. ':' .. spell(#key) .. ':' .. key .. tail end

function Messages.body_of_message(origin, m)
  local tail = Messages.spell_tail(m.attributes, m.unique_key, m.tag, m.headers, m.payload)
  return Messages.spell_body(origin, m.key, tail)
end

-- Says whether an entry of a stream is a message, and nothing that another program wrote.
function Messages.is_ours(fields)
  local mark, size = fields[1], #fields
  if mark ~= 'K' and mark ~= 'k' or size < 4 or #fields[3] ~= 1 or fields[3] == 'l' then return false end
  if size == 4 then return true end
  local name = fields[5]
  return size == 6 and (name == 'm' or name == 'h') or size == 8 and name == 'm' and fields[7] == 'h'
end

-- Returns the body of an entry. An entry that another program wrote has no shard key: its fields lie under the tag 'l',
-- each with its size, since they may be anything.
function Messages.body_of_entry(origin, fields)
  if origin ~= 'l' and Messages.is_ours(fields) then
    local attributes, headers = '', fields[6] or ''
    if fields[5] == 'm' then attributes, headers = fields[6], fields[8] or '' end
    return Messages.spell_body(origin, fields[2], Messages.spell_tail(attributes, '', fields[3], headers, fields[4]))
  end
  local parts = {}
  for at, value in ipairs(fields) do parts[at] = sized(value) end
  return Messages.spell_body(origin, '', Messages.spell_tail('', '', 'l', '', concat(parts)))
end

-- Returns a text of which the size stands before it, and where the next one begins.
local function read_sized(text, at)
  local size, from = match(text, '^(%d+):()', at)
  return sub(text, from, from + size - 1), from + size
end

-- Returns the origin, the shard key, the attributes and the unique key of a body, and where the tag stands.
function Messages.head_of_body(body)
  local origin, at = match(body, '^(%w+):()')
  local key, attributes, unique_key
  key, at = read_sized(body, at)
  attributes, at = read_sized(body, at)
  unique_key, at = read_sized(body, at)
  return origin, key, attributes, unique_key, at
end

-- Takes a body apart.
function Messages.parse_body(body)
  local origin, key, attributes, unique_key, at = Messages.head_of_body(body)
  local headers, from = read_sized(body, at + 1)
  return {
    origin = origin, key = key, attributes = attributes, unique_key = unique_key, tag = sub(body, at, at),
    headers = headers, payload = sub(body, from),
  }
end

-- Returns what is told of a payload to those who do not ask for it: its size, and so much of its beginning that the
-- name of a task can be read.
function Messages.spell_bare(payload) return format('%d ', #payload) .. sub(payload, 1, 204) end

-- Returns a body as the fields of an entry, or bare: with the size of the payload in its place.
function Messages.fields_of_body(body, is_bare)
  local b = Messages.parse_body(body)
  if b.tag == 'l' then
    local foreign = Messages.foreign_fields(b.payload)
    if not is_bare then return b.origin, foreign end
    b.payload = concat(foreign)
  end
  local fields = {'k', b.key, b.tag, is_bare and Messages.spell_bare(b.payload) or b.payload}
  if b.attributes ~= '' then fields[5], fields[6] = 'm', b.attributes end
  if b.headers ~= '' then fields[#fields + 1], fields[#fields + 2] = 'h', b.headers end
  return b.origin, fields
end

-- Returns the name of the task that a payload calls, '' if it is no call (shardq/model/call.py has the form).
function Messages.task_in(tag, payload)
  if tag == 'j' then return match(payload, '^%["([%w_.:/<>\128-\255-]+)",%s*{') or '' end
  if tag ~= 'm' or byte(payload) ~= 146 or #payload < 4 then return '' end
  local mark = byte(payload, 2)
  local from = 3
  local size = mark >= 160 and mark <= 191 and mark - 160 or 0
  if mark == 217 then size, from = byte(payload, 3), 4 end
  local name = sub(payload, from, from + size - 1)
  local behind = byte(payload, from + size)
  local is_map = behind and (behind >= 128 and behind <= 143 or behind == 222 or behind == 223)
  return is_map and find(name, '^[%w_.:/<>\128-\255-]+$') and name or ''
end

-- Returns the fields of an entry that another program wrote.
function Messages.foreign_fields(payload)
  local fields, at = {}, 1
  while at <= #payload do
    local size, from = match(payload, '^(%d+):()', at)
    fields[#fields + 1] = sub(payload, from, from + size - 1)
    at = from + size
  end
  return fields
end

function Messages.deadline_in(attributes) return tonumber(match(attributes, ' x(%d+)')) end

-- Returns how often a message was delivered before it was redriven. (Other programs may write any number.)
function Messages.deliveries_before(attributes)
  return min(tonumber(match(attributes, ' c(%d+)') or 0), 1000000000)
end

-- Notes that the body of a message is over, in the place where it lies, a text. `over` has all such places in their
-- order, and by place the ids.
function Messages.drop_body(q, place, id)
  local over = q.over
  if not over then
    over = {}
    q.over = over
  end
  local ids = over[place]
  if ids then ids[#ids + 1] = id else over[#over + 1], over[place] = place, {id} end
end

-- A stream that this call may touch; nil if it is not declared. A read may declare all streams in their order, and says
-- so. Others are mostly asked for in the order in which they are declared, so the search begins behind the last one
-- found.
function Messages.stream_key(q, number)
  local keys, fixed = q.declared, q.fixed
  local prefix = q.prefix
  if not prefix then
    prefix = sub(keys[META], 1, -5) .. 's' -- the last four letters are "meta"
    q.prefix = prefix
  end
  local key = prefix .. number
  if q.has_all and keys[fixed + 1 + number] == key then return key end
  local size = #keys
  local at = q.last_stream or size
  for _ = fixed + 1, size do
    at = at < size and at + 1 or fixed + 1
    if keys[at] == key then
      q.last_stream = at
      return key
    end
  end
end
