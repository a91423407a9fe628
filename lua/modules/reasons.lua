-- Why a message waits although its turn has come: a pause, a cap, a rate, or the window.
--- @use accounts, keys, limits, window

-- Begins a look at accounts, with the limits that the queue and shard keys have.
local function begin_reasons(q)
  read_rules(q)
  if q.has_mark then begin_limits(q) end
end

-- Returns until when a message is paused by the queue or by its account (nil for one that does not count in the window), as text,
-- with 'paused' before it: '' if time alone does not end it. Returns '' and '' if it is not paused.
local function find_pause(q, paused, account)
  local until_when = math.max(tonumber(paused or '0'), account and account.limits and account.limits.paused_until or 0)
  if until_when <= q.now then return '', '' end
  return 'paused', until_when < NEVER and string.format('%.0f', until_when) or ''
end

-- Returns what holds the messages of an account back, if they are not paused: the cap of what is in flight, the rate, or the window.
local function find_reason(q, account)
  if room_by_limits(q, account) > 0 then return 'window' end
  local limits = account.limits
  return limits and limits.interval > 0 and count_tokens(q, limits) - account.shared < 1 and 'rate' or 'max_in_flight'
end
