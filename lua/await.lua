#!lua flags=allow-oom
-- await: tell which of these messages are done or dead; the caller waits for the others, if it says so.
-- KEYS[1] meta: until when somebody waits
-- KEYS[2] results: what is kept of messages
-- KEYS[3] finished: ids of messages that have ended
-- KEYS[4] moved: where redriven messages and dead letters lie
-- KEYS[5] dead: dead letters
-- ARGV[1] waits: ms for which the caller will look at `finished`, 0 = it will not
-- ARGV[2..] ids: of messages
-- Reply: {now, the last id in `finished`, {of each: '' | "ends|done at|kind|tag|payload" | "x|died at|reason"}} | {now} when there is no such queue
--- @use time, results
local q = {meta = KEYS[1], results = KEYS[2], now = read_clock()}
local finished, moved, dead, waits = KEYS[3], KEYS[4], KEYS[5], tonumber(ARGV[1])
local epoch, awaited = unpack(redis.call('HMGET', q.meta, 'epoch', 'awaited')) -- at most 2: the fields
if not epoch then return {q.now} end

local texts = {}
for at = 2, #ARGV do
  -- One that is dead may have a result: its holder kept that, and did not come to the ack.
  local letter_id = string.match(redis.call('HGET', moved, ARGV[at]) or '', '^x:(.*)$')
  local letter = letter_id and redis.call('XRANGE', dead, letter_id, letter_id)[1]
  local death = letter and 'x|' .. string.match(letter_id, '^%d+') .. '|' .. (letter[2][4] or '')
  texts[at - 1] = death or read_result(q, ARGV[at]) or ''
end
local last = redis.call('XREVRANGE', finished, '+', '-', 'COUNT', 1)[1]
if waits > 0 and tonumber(awaited or '0') < q.now + waits then
  redis.call('HSET', q.meta, 'awaited', string.format('%.0f', q.now + waits))
end
return {q.now, last and last[1] or '0-0', texts}
