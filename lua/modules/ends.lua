-- Those who wait for the end of messages. While somebody does (`awaited` in `meta` says until when), the ids of messages that ended
-- go into the stream `finished`.
local KEPT_ENDS = 1000

-- Tells that these messages have ended, if somebody waits. A waiter looks for itself once in a while, so where that fails nothing
-- else shall: a script is not rolled back.
local function announce_ends(q, message_ids)
  if #message_ids == 0 or tonumber(redis.call('HGET', q.meta, 'awaited') or '0') <= q.now then return end
  redis.pcall('XADD', q.finished, 'MAXLEN', '~', KEPT_ENDS, '*', 'ids', table.concat(message_ids, ' '))
end
