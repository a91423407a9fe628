-- The legacy stream: the plain stream that a queue without shards had before. shardq reads it through that queue's own
-- group. A message that was read is shardq's from then on: it lies among the bodies, and is gone from there. The stream
-- has its turn after the last one of the queue's own.

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
  local last = q.declared[#q.declared]
  if #q.declared == q.fixed or find(last, ':s%d+$') then return end
  Arguments.check_foreign(q.keys, last)
  q.legacy = last
end

-- Takes a bounded number of messages: new ones, and those that a consumer of the group has held for longer than a lease
-- lasts.
function Legacy.take_entries(q, most)
  local key = q.legacy
  if call('XLEN', key) == 0 then
    q.is_legacy_done = true
    return {}
  end
  Types.look_at_all(q)
  -- New ones first: those of consumers that died are looked for only where there are too few.
  local entries = read_group(q, most)
  if #entries < most then
    local group = q.rules.legacy_group
    local idle = call('XAUTOCLAIM', key, group, 'shardq', q.visibility, '0-0', 'COUNT', most - #entries)[2]
    for _, entry in ipairs(idle) do
      -- From here on a lease of shardq's holds it, so the group need not.
      call('XACK', key, group, entry[1])
      entries[#entries + 1] = entry
    end
  end
  q.is_legacy_done = #entries < most
  State.count_up(q, 'adopted', #entries)
  return entries
end

-- Takes a message out of there. Returns its id among the bodies, and its body.
function Legacy.adopt(q, entry)
  local id = Messages.inner_id(entry[1], 'l')
  local body = Messages.body_of_entry('l', entry[2])
  -- The body before the entry goes: an error between the two leaves the message twice, and not nowhere.
  Messages.write_body(q, id, body)
  call('XDEL', q.legacy, entry[1])
  return id, body
end

-- Says whether it has its turn in a read of one message: no stream is ready from the offset on.
function Legacy.has_turn(q)
  return Legacy.may_have_some(q) and not find(Streams.ready(q), '1', q.next_stream + 1, true)
end
