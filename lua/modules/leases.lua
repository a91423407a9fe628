-- Leases: who has which message in flight, and until when. A lease token is "place:id:count:holder": where the body lies (the
-- number of a stream, 'd' or 'l'), its entry id, the delivery count, and a nonce of the holder. If the message counts in the
-- admission window, ":streams:key" follows, so that whoever ends the lease knows where the message belongs.
--- @use accounts, attempts, messages, schedule

-- Splits a lease token into place, entry id and delivery count.
local function split_token(token)
  local place, id, count = string.match(token, '^(%w+):([%d-]+):(%d+):')
  return place, id, tonumber(count)
end

-- Says whether a lease with this score in the index is live. It ends by the server's clock, whether reaped or not: at its
-- deadline, or after `q.jump` of that clock as much later. The score is false if there is no such lease.
local function is_live(q, score)
  if not score then return false end
  local ends, jump = score % SPAN, q.jump
  return ends > q.now or jump and ends < jump.to and ends + jump.by > q.now
end

-- Reads the scores of these leases, false for one that is none. Of a token that comes twice, the second is none: it comes
-- after the first has ended the lease.
local function read_scores(q, tokens)
  local scores = #tokens > 0 and redis.call('ZMSCORE', q.leases, unpack(tokens)) or {} -- at most 500: a chunk
  local seen = {}
  for i, token in ipairs(tokens) do
    if seen[token] then scores[i] = false end
    seen[token] = true
  end
  return scores
end

-- Returns of a lease token the streams that its message may go to, "3,17", and its shard key; '' and nil if the message does
-- not count in the admission window.
local function split_owner(token)
  local shard, at = string.match(token, '^%w+:[%d-]+:%d+:[^:]*:([%d,]*):()')
  return shard or '', at and string.sub(token, at)
end

-- Returns the delivery that a lease token stands for: the message's handle, place, entry id with its ms and its number, delivery
-- count, the streams that it may go to, and its shard key if it counts.
local function parse_token(q, token)
  local handle, place, id, ms, number, deliveries, at = string.match(token, '^((%w+):((%d+)%-(%d+))):(%d+):[^:]*()')
  local shard, shard_key = '', false
  if at <= #token then
    local its_shard, key_at = string.match(token, '^:([%d,]*):()', at)
    shard, shard_key = its_shard or '', q.is_fair and key_at and string.sub(token, key_at)
  end
  return {
    handle = handle, place = place, id = id, ms = tonumber(ms), number = tonumber(number), deliveries = tonumber(deliveries),
    shard = shard, shard_key = shard_key, last_error = '',
  }
end

-- Ends leases that the caller took out of the index. Returns the messages, each with what is known of it; or false where it was
-- cancelled while it was in flight: then nothing is left of it.
local function end_leases(q, tokens, any_cancelled)
  local items, shard_keys = {}, {}
  if #tokens == 0 then return items end
  for at, token in ipairs(tokens) do
    local item = parse_token(q, token)
    items[at] = item
    if item.shard_key then shard_keys[#shard_keys + 1] = item.shard_key end
  end
  if q.is_fair then
    load_accounts(q, shard_keys)
    for _, shard_key in ipairs(q.counts_flight and shard_keys or {}) do release_delivery(q, shard_key) end
  end
  load_attempts(q, items)
  for at, item in ipairs(any_cancelled and items or {}) do
    if redis.call('SREM', q.cancelled, item.handle) == 1 then
      forget_cancelled(q, item.handle)
      items[at] = false
    end
  end
  return items
end
