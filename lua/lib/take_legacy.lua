-- The plain stream of the un-sharded predecessor, read through its own group; what its dead consumers still hold
-- is taken over once idle for a lease time. From here on shardq's lease holds the message, not that group.
take_legacy = function(most)
  check_types(nil)
  local key = keys['l']
  if most == 0 or redis.call('XLEN', key) == 0 then
    legacy_done = legacy_done or most > 0
    return
  end
  local function read()
    return redis.pcall('XREADGROUP', 'GROUP', legacy_group, 'shardq', 'COUNT', most, 'NOACK', 'STREAMS', key, '>')
  end
  local reply = read()
  if reply and reply.err then
    redis.call('XGROUP', 'CREATE', key, legacy_group, '0')
    reply = read()
  end
  local entries = reply and reply[1] and reply[1][2] or {}
  if #entries < most then
    local idle = redis.call('XAUTOCLAIM', key, legacy_group, 'shardq', visibility, '0-0', 'COUNT', most - #entries)[2]
    for _, entry in ipairs(idle) do
      redis.call('XACK', key, legacy_group, entry[1])
      entries[#entries + 1] = entry
    end
  end
  legacy_done = #entries < most
  for _, entry in ipairs(entries) do
    adopted = adopted + 1
    note_attempts('l:' .. entry[1], 0, '', '') -- so that `cancel` knows it for a message
    hand_out('l', entry[1], 1, '', entry[2], '', '')
  end
end
