-- Where a message's body lies, and its entry id, from its handle "place:id".
-- place is a stream number, "d" for the store of delayed messages, or "l" for the legacy stream.
local function split_handle(handle)
  return string.match(handle, '^(%w+):([%d-]+)')
end
