-- A message as it is stored. In a stream it is an entry: 'K' (or 'k', if it is on no account), shard key, tag, payload,
-- and only where there are any, attributes under 'm' and headers under 'h'. Outside of a stream it is a body, a text:
-- "origin:size of the shard key:shard key" "size:attributes" "size:unique key" tag "size:headers" payload. A payload
-- that is large lies by itself, in another field of `bodies`: then a '=' stands behind the origin, and the body ends
-- with the headers. So a large payload passes as it came, and who needs only the rest looks at no more than that. The
-- attributes are " x<deadline ms> t<due ms> c<deliveries before a redrive>". The origin is the last part of the
-- message's id: the stream that it was written into, 'd' if it was stored by itself, 'o' if it waited in an overflow,
-- 'l' if it came from the legacy stream. A message's id is "ms-number-origin"; after an 'o' comes '.' and the shard
-- key, since nothing else leads to that overflow.
Messages.REFERENCE = '@' -- behind the id in a record: the body lies by itself
Messages.APART = '=' -- behind the id in a record, or the origin in a body: the payload lies by itself
local LARGEST_WITHIN = 512 -- bytes of a payload that stands in its body or record: above, copies cost more than a field

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

-- The field of `bodies` that a payload has which lies by itself.
function Messages.field_of_payload(id) return 'p' .. id end

function Messages.is_large(payload) return #payload > LARGEST_WITHIN end

-- Says whether the payload of a body lies by itself.
function Messages.is_apart(body) return find(body, '^%w+=') ~= nil end

-- The part of a body between the shard key and the payload.
function Messages.spell_tail(attributes, unique_key, tag, headers)
  if attributes == '' and unique_key == '' and headers == '' then return '0:0:' .. tag .. '0:' end
  return #attributes .. ':' .. attributes .. #unique_key .. ':' .. unique_key .. tag .. #headers .. ':' .. headers
end

-- The part of a body before the tail; `mark` is that of the record.
function Messages.spell_head(origin, mark, key)
  return origin .. (mark == Messages.APART and '=' or ':') .. spell(#key) .. ':' .. key
end

-- Returns a body, and the payload if that lies by itself. (One concatenation: Lua hashes each new text whole.)
function Messages.spell_body(origin, key, tail, payload)
  if #payload > LARGEST_WITHIN then return origin .. '=' .. spell(#key) .. ':' .. key .. tail, payload end
  return origin .. ':' .. spell(#key) .. ':' .. key .. tail .. payload
end

-- Returns the body of a message from another program, whose fields come behind each other, each with its size.
function Messages.spell_foreign(origin, key, attributes, fields, first)
  local parts = {}
  for at = first, #fields do parts[#parts + 1] = sized(fields[at]) end
  local tail = Messages.spell_tail(attributes, '', 'l', '')
  return Messages.spell_head(origin, '', key) .. tail .. concat(parts)
end

-- Writes a body, and the payload if that lies by itself.
function Messages.write_body(q, id, body, payload)
  if payload then
    call('HSET', q.keys[BODIES], id, body, Messages.field_of_payload(id), payload)
  else
    call('HSET', q.keys[BODIES], id, body)
  end
end

-- Says whether an entry of a stream is a message, and nothing that another program wrote.
function Messages.is_ours(fields)
  local mark, size = fields[1], #fields
  if mark ~= 'K' and mark ~= 'k' or size < 4 or #fields[3] ~= 1 or fields[3] == 'l' then return false end
  if size == 4 then return true end
  local name = fields[5]
  return size == 6 and (name == 'm' or name == 'h') or size == 8 and name == 'm' and fields[7] == 'h'
end

-- Returns the body of an entry, and the payload if that is to lie by itself. An entry that another program wrote has no
-- shard key: its fields lie under the tag 'l', each with its size, since they may be anything.
function Messages.body_of_entry(origin, fields)
  if origin ~= 'l' and Messages.is_ours(fields) then
    local attributes, headers = '', fields[6] or ''
    if fields[5] == 'm' then attributes, headers = fields[6], fields[8] or '' end
    local tail = Messages.spell_tail(attributes, '', fields[3], headers)
    return Messages.spell_body(origin, fields[2], tail, fields[4])
  end
  return Messages.spell_foreign(origin, '', '', fields, 1)
end

-- Returns a text whose size stands before it, and where the next one begins.
local function read_sized(text, at)
  local size, from = match(text, '^(%d+):()', at)
  return sub(text, from, from + size - 1), from + size
end

-- Returns the origin, the shard key, the attributes and the unique key of a body, and where the tag stands.
function Messages.head_of_body(body)
  local origin, at = match(body, '^(%w+)[:=]()')
  local key, attributes, unique_key
  key, at = read_sized(body, at)
  attributes, at = read_sized(body, at)
  unique_key, at = read_sized(body, at)
  return origin, key, attributes, unique_key, at
end

-- Takes a body apart. (Of a payload that lies by itself it has nothing.)
function Messages.parse_body(body)
  local origin, key, attributes, unique_key, at = Messages.head_of_body(body)
  local headers, from = read_sized(body, at + 1)
  return {
    origin = origin, key = key, attributes = attributes, unique_key = unique_key, tag = sub(body, at, at),
    headers = headers, payload = sub(body, from),
  }
end

-- Returns what replies without payloads have of one: its size, and enough of its beginning that the name of a task can
-- be read.
function Messages.spell_bare(payload) return format('%d ', #payload) .. sub(payload, 1, 204) end

-- Returns the payload of a body that has it, or whose payload lies by itself in the hash `bodies`; '' if that is gone.
function Messages.payload_of(bodies, id, body, b)
  if not Messages.is_apart(body) then return b.payload end
  return call('HGET', bodies, Messages.field_of_payload(id)) or ''
end

-- Returns the origin of a body, and the fields that it would have as an entry, or bare: with the size of the payload in
-- its place; and how large it is. `payload` is one that lies by itself, nil if it must be looked up.
function Messages.fields_of_body(bodies, id, body, payload, is_bare)
  local b = Messages.parse_body(body)
  b.payload = payload or Messages.payload_of(bodies, id, body, b)
  local size = #body + (Messages.is_apart(body) and #b.payload or 0)
  if b.tag == 'l' then
    local foreign = Messages.foreign_fields(b.payload)
    if not is_bare then return b.origin, foreign, size end
    b.payload = concat(foreign)
  end
  local fields = {'k', b.key, b.tag, is_bare and Messages.spell_bare(b.payload) or b.payload}
  if b.attributes ~= '' then fields[5], fields[6] = 'm', b.attributes end
  if b.headers ~= '' then fields[#fields + 1], fields[#fields + 2] = 'h', b.headers end
  return b.origin, fields, size
end

-- Returns a body, and the payload if that lies by itself, with the size of the payload in its place. The bodies
-- of other programs stay as they are.
function Messages.strip_body(body, payload)
  local _, _, _, _, at = Messages.head_of_body(body)
  if sub(body, at, at) == 'l' then return body, payload end
  if payload then return body, spell(#payload) end
  local _, from = read_sized(body, at + 1)
  return sub(body, 1, from - 1) .. spell(#body - from + 1)
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
    q.over = {place, [place] = {id}}
    return
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
