-- Messages as entries of streams. The fields are the shard key under 'k' ('K' if the message counts in the admission window),
-- the payload under its tag, and only where there are any, attributes under 'm' and headers under 'h'. The attributes are
-- " x<deadline ms> t<due ms> i<original id> c<deliveries before a redrive>".

-- Appends a message to a stream, or to the stream of bodies.
local function append_message(q, key, id, shard_key, tag, payload, attributes, headers)
  if attributes == '' and headers == '' then
    redis.call('XADD', key, id, q.mark, shard_key, tag, payload)
    return
  end
  local fields = {q.mark, shard_key, tag, payload}
  if attributes ~= '' then fields[5], fields[6] = 'm', attributes end
  if headers ~= '' then fields[#fields + 1], fields[#fields + 2] = 'h', headers end
  redis.call('XADD', key, id, unpack(fields)) -- at most 8
end

-- Reads the options of a message, "delay in ms|ms to its deadline|dedup key".
local function read_options(q, text)
  local after, lasts, dedup_key = string.match(text, '^(%d*)|(%d*)|(.*)$')
  local delay, attributes = tonumber(after) or 0, ''
  if lasts ~= '' then attributes = string.format(' x%.0f', q.now + lasts) end
  if delay > 0 then attributes = string.format('%s t%.0f', attributes, q.now + delay) end
  return {delay = delay, attributes = attributes, dedup_key = dedup_key, after = after}
end

-- Returns the attributes of a message, given the fields of its entry.
local function attributes_of(fields)
  return (fields[1] == 'k' or fields[1] == 'K') and fields[5] == 'm' and fields[6] or ''
end
