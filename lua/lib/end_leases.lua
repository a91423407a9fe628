-- These leases are over; the caller took them out of the index. Of each that was not cancelled meanwhile (then nothing is left
-- of it, and `false` stands here): {handle, place, streams that it may go to, false, false, whether more is known of it,
-- shard key (false unless it counts), ms and number in its id, deliveries, last error}, as `give_back_all` wants it.
--- @include lib/land
local function released(token)
  local handle, place, ms, number, count, at = string.match(token, '^((%w+):(%d+)%-(%d+)):(%d+):[^:]*()')
  local hand, key_at = string.match(token, '^:([%d,]*):()', at)
  local key = fair and key_at and string.sub(token, key_at)
  return {handle, place, hand or '', false, false, false, key or false, tonumber(ms), tonumber(number), tonumber(count), ''}
end
local function note_known(items, handles)
  for at, text in ipairs(redis.call('HMGET', attempts, unpack(handles))) do -- at most 250: a sweep, or a chunk
    if text then
      local item, _, hand, last_error = items[at], told_by(text)
      item[6], item[11] = true, last_error
      if hand ~= '' then item[3] = hand end
    end
  end
end
local function end_leases(tokens, any_cancelled)
  local items, handles, keys_ended = {}, {}, {}
  if #tokens == 0 then return items end
  for at, token in ipairs(tokens) do
    local item = released(token)
    items[at], handles[at] = item, item[1]
    if item[7] then keys_ended[#keys_ended + 1] = item[7] end
  end
  meet(keys_ended)
  for _, key in ipairs(keys_ended) do land(key) end
  note_known(items, handles)
  if any_cancelled then
    for at, handle in ipairs(handles) do
      if redis.call('SREM', cancelled, handle) == 1 then
        forget_cancelled(handle)
        items[at] = false
      end
    end
  end
  return items
end
