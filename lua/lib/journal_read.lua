-- What this read hands out.
if log then
  local function note_delivered(place, id, deliveries, fields)
    local due = #fields > 4 and place ~= 'l' and string.match(attributes_of(fields), ' t(%d+)')
    log.body('d', place, id, fields, deliveries, due)
  end
  for at = 1, #first_time, 2 do
    local place = string.match(first_time[at], '^%w+')
    for _, entry in ipairs(first_time[at + 1]) do note_delivered(place, entry[1], '1', entry[2]) end
  end
  for _, row in ipairs(again) do
    local place, id, deliveries = string.match(row[1], '^(%w+):([%d-]+):(%d+)')
    note_delivered(place, id, deliveries, row[3])
  end
  log.write(ARGV[11])
end
