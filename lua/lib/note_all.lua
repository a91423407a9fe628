-- What is known from now on of messages that are given back, in one call: their deliveries so far, last errors, and since
-- when they are deliverable again.
--- @include lib/note_of
local function note_all(items)
  local notes = {}
  for _, item in ipairs(items) do
    notes[#notes + 1], notes[#notes + 2] = item[1], note_of(item[10], item[3], item[11], item[12])
    item[6] = true
  end
  if #notes > 0 then redis.call('HSET', attempts, unpack(notes)) end -- at most 500: two for each message of a chunk
end
