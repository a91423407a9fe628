-- Whether the stream's cursor is past the entry. Others' entries have numbers of their own: the time comes first.
local function is_past()
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  local at_ms, at_number = string.match(redis.call('HGET', lens, 'h' .. place) or '0-0', '^(%d+)%-(%d+)$')
  ms, at_ms = tonumber(ms), tonumber(at_ms)
  return ms < at_ms or ms == at_ms and tonumber(number) <= tonumber(at_number)
end
