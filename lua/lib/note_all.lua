-- What is known from now on of messages that are given back, in one call: their deliveries so far, last errors, and since
-- when they are deliverable again. `texts` gets what was written, by handle, for a look at them in the same call.
--- @include lib/note_of
local function note_all(items, texts)
  local notes = {}
  for at, item in ipairs(items) do
    local text = note_of(item[10], item[3], item[11], item[12])
    notes[2 * at - 1], notes[2 * at] = item[1], text
    if texts then texts[item[1]] = text end
    item[6] = true
  end
  if #notes > 0 then redis.call('HSET', attempts, unpack(notes)) end -- at most 500: two for each message of a chunk
end
