-- The legacy stream: the plain stream that a queue without shards had before. shardq reads it through that queue's own
-- group. A message that was read has a lease of shardq from then on, and the group holds it no more. It has its turn
-- after the last stream.

-- Reads new messages through the group, which is created if it is missing.
local function read_group(q, most)
  local key, group = q.legacy, q.rules.legacy_group
  local words = {'GROUP', group, 'shardq', 'COUNT', most, 'NOACK', 'STREAMS', key, '>'}
  local reply = pcall_redis('XREADGROUP', unpack(words)) -- at most 9: the words
  if reply and reply.err then
    call('XGROUP', 'CREATE', key, group, '0')
    reply = call('XREADGROUP', unpack(words)) -- at most 9: the words
  end
  return reply and reply[1] and reply[1][2] or {}
end

-- Says whether a read may find something there: the stream is declared, and was not found empty in this call.
function Legacy.may_have_some(q) return q.legacy and not q.is_legacy_done end

-- Notes the legacy stream, if the call declares it.
function Legacy.open(q)
  q.legacy = q.rules.legacy_group and Messages.stream_key(q, 'l') or nil
end

-- Takes at most so many messages: new ones, and those that a consumer of the group has held for longer than a lease
-- lasts.
function Legacy.take_entries(q, most)
  local key = q.legacy
  if call('XLEN', key) == 0 then
    q.is_legacy_done = true
    return {}
  end
  local entries = read_group(q, most)
  if #entries < most then
    local group = q.rules.legacy_group
    local idle = call('XAUTOCLAIM', key, group, 'shardq', q.visibility, '0-0', 'COUNT', most - #entries)[2]
    for _, entry in ipairs(idle) do
      call('XACK', key, group, entry[1])
      entries[#entries + 1] = entry
    end
  end
  q.is_legacy_done, q.adopted = #entries < most, (q.adopted or 0) + #entries
  return entries
end

-- Says whether it has its turn in a read of one message: no stream is ready from the offset on.
function Legacy.has_turn(q)
  return Legacy.may_have_some(q) and not find(q.ready, '1', q.next_stream + 1, true)
end
