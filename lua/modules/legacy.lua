-- The legacy stream: the plain stream that a queue without shards had before. shardq reads it through that queue's own group. A
-- message that was read has a lease of shardq from then on, and the group holds it no more.
--- @use attempts, deliveries, keys

-- Reads new messages through the group, which is created if it is missing.
local function read_group(q, key, most)
  local reply = redis.pcall('XREADGROUP', 'GROUP', q.legacy_group, 'shardq', 'COUNT', most, 'NOACK', 'STREAMS', key, '>')
  if reply and reply.err then
    redis.call('XGROUP', 'CREATE', key, q.legacy_group, '0')
    reply = redis.call('XREADGROUP', 'GROUP', q.legacy_group, 'shardq', 'COUNT', most, 'NOACK', 'STREAMS', key, '>')
  end
  return reply and reply[1] and reply[1][2] or {}
end

-- Takes at most so many messages of the legacy stream: new ones, and those that a consumer of the group has held for longer than a
-- lease lasts. It is stored of each that it was not delivered, so that `cancel` knows it for a message.
local function take_legacy(q, most)
  check_read_types(q, nil)
  local key = q.streams['l']
  if most == 0 or redis.call('XLEN', key) == 0 then
    q.is_legacy_done = q.is_legacy_done or most > 0
    return
  end
  local entries = read_group(q, key, most)
  if #entries < most then
    local idle = redis.call('XAUTOCLAIM', key, q.legacy_group, 'shardq', q.visibility, '0-0', 'COUNT', most - #entries)[2]
    for _, entry in ipairs(idle) do
      redis.call('XACK', key, q.legacy_group, entry[1])
      entries[#entries + 1] = entry
    end
  end
  q.is_legacy_done, q.adopted = #entries < most, q.adopted + #entries
  for _, entry in ipairs(entries) do
    redis.call('HSET', q.attempts, 'l:' .. entry[1], spell_attempts(0, '', '', q.now))
    deliver_row(q, 'l', entry[1], 1, '', entry[2], '', '')
  end
end
