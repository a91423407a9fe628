-- What the caller says of the messages that it settles: their ids, shard keys and deliveries, as the last parts of a
-- journal's entry. One that does not know yet that the queue has a journal says nothing.
if log then
  local ids, lengths, counts, client, names = string.match(told, '^(.-)\n(.-)\n(.-)\n\n(.-)\n(.*)$')
  local told_ids, told_keys, told_counts, at = {}, {}, {}, 1
  for id in string.gmatch(ids or '', '[^,]+') do told_ids[#told_ids + 1] = id end
  for deliveries in string.gmatch(counts or '', '%d+') do told_counts[#told_counts + 1] = deliveries end
  for length in string.gmatch(lengths or '', '%d+') do
    told_keys[#told_keys + 1] = string.sub(names, at, at + length - 1)
    at = at + length
  end
  log.settled = function(kind, i, place, id, deliveries, due)
    log.note(kind, told_ids[i] or id .. '-' .. place, told_keys[i] or '', told_counts[i] or deliveries, due)
  end
  log.finish = function() log.write(client or '') end
end
