-- One entry of the journal, for `size` events; its id is the number of the last of them (docs/journal.md). A call never
-- fails because of its journal: what could not be written is noticed by its readers, since its numbers are missing.
local function journal_entry(size, ...)
  local last = redis.call('HINCRBY', meta, 'events', size)
  local oldest = string.format('%.0f', math.max(0, last - kept))
  local id = string.format('%.0f-%.0f', last, now)
  redis.pcall('XADD', journal, 'MINID', '~', oldest, id, '1', table.concat({...}, '\n'))
end
