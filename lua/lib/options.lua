-- "delay_ms|ms_to_deadline|dedup key" of a message: its delay, its attributes, its dedup key.
local function options_of(text)
  local after, lasts, key = string.match(text, '^(%d*)|(%d*)|(.*)$')
  local delay, attributes = tonumber(after) or 0, ''
  if lasts ~= '' then attributes = string.format(' x%.0f', now + lasts) end
  if delay > 0 then attributes = string.format('%s t%.0f', attributes, now + delay) end
  return delay, attributes, key
end
