-- Where a message is, given the id that its writer got: in a stream, in a redelivery queue, delayed, held back, or in flight.
--- @use messages, overflow, redelivery, schedule, streams
local MOST_LEASES = 1000
local LEASES_READ = 100

-- Looks a message up, wherever it lies. Returns {lies_at, place, id, key, handle, score, due, is_cancelled, fields, is_new}, or nil
-- if it was never handed out: an entry of the legacy stream is a message only once it was delivered, and then something is known
-- of it. `score` and `due` are those in the redelivery queue and in the index of delayed messages, false if it is not there.
-- `fields` is nil if its body is gone. Of a dead letter {is_dead, id}, with the id of its entry.
-- `lies_at` says where a message lies that was redriven: it keeps its id, but not its place.
local function find_message(q, message_id, place, id, stream)
  local lies_at = redis.call('HGET', q.moved, message_id)
  if lies_at then place, id = split_handle(lies_at) end
  if place == 'x' then return {is_dead = true, id = id} end
  local key, handle = place == 'd' and q.bodies or stream, place .. ':' .. id
  if place == 'l' and redis.call('HEXISTS', q.attempts, handle) == 0 then return nil end
  local body = redis.call('XRANGE', key, id, id)[1]
  return {
    lies_at = lies_at, place = place, id = id, key = key, handle = handle, fields = body and body[2],
    score = redis.call('ZSCORE', q.redelivery, handle), due = redis.call('ZSCORE', q.delayed, handle),
    is_cancelled = redis.call('SISMEMBER', q.cancelled, handle) == 1,
    is_new = body and place ~= 'd' and place ~= 'l' and not is_behind_cursor(q, place, id),
  }
end

-- Finds the lease of a message that is in flight, among the leases of its bucket that end first: the shard key is false for one
-- that does not count in the admission window. Returns its token and its score, or nil if it is not among these. Nothing but a look
-- at each finds a token by its message, since the score and the holder must be known to ask for it.
local function find_lease(q, handle, shard_key)
  local start, head = shard_key and bucket_of(shard_key) * SPAN or 0, handle .. ':'
  local from, upto = start > 0 and string.format('%.0f', start) or '-inf', string.format('(%.0f', start + SPAN)
  for offset = 0, MOST_LEASES - 1, LEASES_READ do
    local tokens = redis.call('ZRANGEBYSCORE', q.leases, from, upto, 'LIMIT', offset, LEASES_READ)
    for _, token in ipairs(tokens) do -- scores take longer than all else here
      if string.sub(token, 1, #head) == head then return token, tonumber(redis.call('ZSCORE', q.leases, token)) end
    end
    if #tokens < LEASES_READ then return nil end
  end
  return nil
end

-- Returns when a lease ends by the server's clock, given its score: after a jump of that clock as much later, as `is_live` knows.
local function lease_end(q, score)
  local ends, jump = score % SPAN, q.jump
  return jump and ends < jump.to and ends + jump.by or ends
end

-- Estimates how many new messages of a stream have a lower number than this one, from how many there are and from the numbers
-- of the first and the last. They are as if spread evenly between these.
local function estimate_new(q, number, key, new, upto)
  local last = key and redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local highest = last and tonumber(string.match(last[1], '%d+$')) or q.written
  local before = tonumber(string.match(redis.call('HGET', q.lens, 'h' .. number) or '0-0', '%d+$'))
  local share = math.floor((upto - before - 1) * new / math.max(1, highest - before))
  return math.max(0, math.min(new, share))
end

-- Estimates how many messages of a stream are delivered before this one, which is new there or waits in the stream's redelivery
-- queue. In a fair queue the two are delivered by number; in any other all of the redelivery queue comes first.
local function estimate_in_stream(q, found, number)
  local first, own = number * POSITIONS, tonumber(string.match(found.id, '%d+$'))
  local from, upto = string.format('%.0f', first), first + POSITIONS
  local waiting = redis.call('ZCOUNT', q.redelivery, from, string.format('(%.0f', upto))
  local new = math.max(0, tonumber(redis.call('HGET', q.lens, number) or '0') - waiting)
  if found.score then
    upto, own = tonumber(found.score), q.is_fair and found.score - first or 0
  elseif q.is_fair then
    upto = first + own
  end
  local before = redis.call('ZCOUNT', q.redelivery, from, string.format('(%.0f', upto))
  return before + (own > 0 and estimate_new(q, number, found.is_new and found.key, new, own) or 0)
end

-- Estimates how many messages of its shard key are before one that is held back: those in its overflow, given how many that has in
-- all, as if each of the other members had as many. Returns nil if it is not held back.
local function estimate_in_overflow(q, shard_key, found, held)
  local member, numbers, _, at = find_held(q, shard_key, found.place, string.match(found.id, '%d+$'))
  if not member then return nil end
  local run = run_prefix(shard_key)
  local others = redis.call('ZLEXCOUNT', q.overflow, '[' .. run, '(' .. string.sub(run, 1, -2) .. ';') - 1
  local before = redis.call('ZLEXCOUNT', q.overflow, '[' .. run, '(' .. member)
  return math.floor(math.max(0, held - #numbers) * before / math.max(1, others)) + at - 1
end
