-- One entry of the journal, for `size` events; its id is the number of the last of them (docs/journal.md). A call never
-- fails because of its journal: what could not be written is noticed by its readers, since its numbers are missing.
local journal_entry
if kept > 0 then
  journal_entry = function(size, text)
    local last = redis.call('HINCRBY', meta, 'events', size)
    local oldest, id = string.format('%.0f', math.max(0, last - kept)), string.format('%.0f-%.0f', last, now)
    redis.pcall('XADD', journal, 'MINID', '~', oldest, id, '1', text)
  end
end
