-- Messages as entries of streams. The fields are the shard key under 'k' ('K' if the message counts in the admission window),
-- the payload under its tag, and only where there are any, attributes under 'm' and headers under 'h'. The attributes are
-- " x<deadline ms> t<due ms> i<original id> c<deliveries before a redrive>".
--- @use journal

-- Appends a message to a stream, or to the stream of bodies.
local function append_message(q, key, id, shard_key, tag, payload, attributes, headers)
  if attributes == '' and headers == '' then
    redis.call('XADD', key, id, q.mark, shard_key, tag, payload)
    return
  end
  local fields = {q.mark, shard_key, tag, payload}
  if attributes ~= '' then fields[5], fields[6] = 'm', attributes end
  if headers ~= '' then fields[#fields + 1], fields[#fields + 2] = 'h', headers end
  redis.call('XADD', key, id, unpack(fields)) -- at most 8
end

-- Reads the options of a message, "delay in ms|ms to its deadline|dedup key", with '@' in place of the second '|' if the
-- dedup key has a scope of its own; with a unique key it is
-- "delay|ms to its deadline/<mode><length of the unique key>|id that the key is taken from|unique key and dedup key".
local function read_options(q, text)
  local after, lasts, dedup_key, unique_key = nil, nil, nil, ''
  local mode, length, takes_from, scope
  after, lasts, mode, length, takes_from, dedup_key = string.match(text, '^(%d*)|(%d*)/(%a)(%d+)|([%w-]*)|(.*)$')
  if mode then
    unique_key, dedup_key = string.sub(dedup_key, 1, length), string.sub(dedup_key, length + 1)
  else
    after, lasts, scope, dedup_key = string.match(text, '^(%d*)|(%d*)([|@])(.*)$')
  end
  local delay, attributes = tonumber(after) or 0, ''
  if lasts ~= '' then attributes = string.format(' x%.0f', q.now + lasts) end
  if delay > 0 then attributes = string.format('%s t%.0f', attributes, q.now + delay) end
  return {
    delay = delay, attributes = attributes, dedup_key = dedup_key, after = after, unique_key = unique_key, mode = mode,
    takes_from = takes_from, holder = nil, same_as = nil, is_own = scope == '@',
  }
end

-- Returns the attributes of a message, given the fields of its entry.
local function attributes_of(fields)
  return (fields[1] == 'k' or fields[1] == 'K') and fields[5] == 'm' and fields[6] or ''
end

-- Returns the fields of a message with the size of its payload, in bytes, in the payload's place. What others wrote has no shard
-- key and no attributes, or only those of a redrive: all of its own fields are its payload.
local function strip_payload(fields)
  local is_ours = (fields[1] == 'k' or fields[1] == 'K') and #fields >= 4
  local bare, size, from = {'k', '', 'l'}, 0, 1
  if is_ours then
    from = fields[3] == 'l' and (fields[5] == 'm' and 7 or 5) or #fields + 1
    for at = 1, from - 1 do bare[at] = fields[at] end
    size = #fields[4]
  end
  for at = from, #fields do size = size + #fields[at] end
  bare[4] = string.format('%d', size)
  return bare
end

-- Notes an event of a message whose fields are known: they have its shard key, and if it was redriven its original id and the
-- deliveries before. Who else writes attributes may write any number of these.
local function note_message(q, kind, place, id, fields, deliveries, due)
  local shard_key, origin, before = '', nil, nil
  if place ~= 'l' and (fields[1] == 'k' or fields[1] == 'K') then
    local attributes = attributes_of(fields)
    shard_key, origin, before = fields[2], string.match(attributes, ' i(%S+)'), string.match(attributes, ' c(%d+)')
  end
  if before then deliveries = deliveries + math.min(before, 1000000000) end
  note_event(q, kind, origin or id .. '-' .. place, shard_key, deliveries, due)
end

-- Notes that a lease is over which nobody settled. The body is read only where a redrive may have given the message another id:
-- one that lies in a stream would be read for its shard key alone, however large it is.
local function note_unsettled(q, kind, item)
  local body = item.place == 'd' and redis.call('XRANGE', q.bodies, item.id, item.id)[1]
  if body then
    note_message(q, kind, item.place, item.id, body[2], item.deliveries)
  else
    note_event(q, kind, item.id .. '-' .. item.place, item.shard_key or '', item.deliveries)
  end
end

-- Says whether a message's own deadline is over.
local function is_expired(q, fields)
  local ends = string.match(attributes_of(fields), ' x(%d+)')
  return ends and tonumber(ends) <= q.now
end

-- Splits a handle, "place:id": where the body of a message lies, and its entry id.
local function split_handle(handle)
  return string.match(handle, '^(%w+):([%d-]+)')
end

-- Forgets a message whose body was looked up in the stream `key`, nil if it is not there: the body, and what is known of it.
local function forget_body(q, key, id, handle, body)
  local origin = body and string.match(attributes_of(body[2]), ' i(%S+)')
  if origin then redis.call('HDEL', q.moved, origin) end
  redis.call('XDEL', key, id)
  redis.call('HDEL', q.attempts, handle)
end

-- Forgets a message that was acked.
local function forget_message(q, key, id, handle)
  forget_body(q, key, id, handle, redis.call('XRANGE', key, id, id)[1])
end

-- Forgets a message that was cancelled while it was in flight, now that its lease is over. If it was redriven, `cancel` noted
-- its original id.
local function forget_cancelled(q, handle)
  local origin = string.match(redis.call('HGET', q.attempts, handle) or '', '^0|| i(%S+)$')
  if origin then redis.call('HDEL', q.moved, origin) end
  redis.call('HDEL', q.attempts, handle)
  redis.call('HINCRBY', q.meta, 'gone', 1)
  if q.events then note_event(q, 'c', origin or string.gsub(handle, '^(%w+):(.*)$', '%2-%1'), '', 0) end
end
