-- The journal, where the queue has one: what happens in this call is noted, and written down at its end as one entry.
local log
if kept > 0 then
--- @include lib/journal_entry
  local events, kinds, ids, lengths, owned, counts, dues = 0, {}, {}, {}, {}, {}, {}
  log = {entry = journal_entry}
  log.note = function(kind, id, key, deliveries, due)
    events = events + 1
    kinds[events], ids[events], lengths[events], owned[events] = kind, id, #key, key
    counts[events], dues[events] = deliveries, due and string.format('%.0f', due) or ''
  end
  -- Of a message whose body is at hand: its id and shard key are there, and its deliveries before a redrive.
  log.body = function(kind, place, id, fields, deliveries, due)
    local ours = place ~= 'l' and (fields[1] == 'k' or fields[1] == 'K')
    local key, extra = ours and fields[2] or '', ours and fields[5] == 'm' and fields[6] or ''
    local before = tonumber(string.match(extra, ' c(%d+)')) or 0
    log.note(kind, string.match(extra, ' i(%S+)') or id .. '-' .. place, key, deliveries + before, due)
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
    log.entry(events, table.concat(kinds), table.concat(ids, ','), table.concat(lengths, ','),
      table.concat(counts, ','), table.concat(dues, ','), client, table.concat(owned))
  end
end
