-- The journal, where the queue has one: what happens in this call is noted, and written down at its end as one entry.
--- @include lib/journal_entry
local log
if journal_entry then
  local events, kinds, ids, lengths, owned, counts, dues, digits = 0, {}, {}, {}, {}, {}, {}, {}
  log = {}
  log.note = function(kind, id, key, deliveries, due)
    local size = digits[#key] or string.format('%d', #key)
    events, digits[#key] = events + 1, size
    kinds[events], ids[events], lengths[events], owned[events] = kind, id, size, key
    counts[events], dues[events] = deliveries, due and string.format('%.0f', due) or ''
  end
  -- Of a message whose body is at hand: its id and shard key are there, and its deliveries before a redrive.
  log.body = function(kind, place, id, fields, deliveries, due)
    local origin, before, key = nil, nil, ''
    if place ~= 'l' and (fields[1] == 'k' or fields[1] == 'K') then
      key = fields[2]
      if fields[5] == 'm' then origin, before = string.match(fields[6], ' i(%S+)'), string.match(fields[6], ' c(%d+)') end
    end
    log.note(kind, origin or id .. '-' .. place, key, before and deliveries + math.min(before, 1000000000) or deliveries, due)
  end
  -- Of a lease that nobody settled. The body is looked at only where the message may have got another id by a redrive:
  -- one that lies in a stream would be read for its shard key alone, however large it is.
  log.lease = function(kind, place, id, deliveries, key)
    local body = place == 'd' and redis.call('XRANGE', later, id, id)[1]
    if body then
      log.body(kind, place, id, body[2], deliveries)
    else
      log.note(kind, id .. '-' .. place, key or '', deliveries)
    end
  end
  log.write = function(client)
    if events == 0 then return end
    journal_entry(events, table.concat({
      table.concat(kinds), table.concat(ids, ','), table.concat(lengths, ','), table.concat(counts, ','),
      table.concat(dues, ','), client, table.concat(owned),
    }, '\n'))
  end
end
