-- The journal: what happened to the queue's messages (docs/journal.md). `q.journal_size` says for how many events, 0 is none.

-- Appends one entry with `size` events. Its id is the number of the last of them, and the time. A call never fails because
-- of its journal: readers notice what could not be written, since its numbers are missing.
local function append_events(q, size, text)
  local last = redis.call('HINCRBY', q.meta, 'events', size)
  local oldest = string.format('%.0f', math.max(0, last - q.journal_size))
  redis.pcall('XADD', q.journal, 'MINID', '~', oldest, string.format('%.0f-%.0f', last, q.now), '1', text)
end

-- Appends that messages were written. `places` are where they lie now, as the reply says it; `ids` is what their ids begin
-- with; `dues` is the text with the times when they are due, '' if none is delayed.
local function append_written(q, ids, places, shard_keys, dues)
  local lengths, digits = {}, {}
  for i, key in ipairs(shard_keys) do
    lengths[i] = digits[#key] or string.format('%d', #key)
    digits[#key] = lengths[i]
  end
  append_events(q, #places, table.concat({
    string.rep('w', #places), ids .. table.concat(places, ','), table.concat(lengths, ','), '', dues, '',
    table.concat(shard_keys),
  }, '\n'))
end
