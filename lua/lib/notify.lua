-- One notification: wakes exactly one blocked reader. `hint` is the stream to look at, '' for "look again".
-- Readers that found nothing say until when they may be blocked; when nobody can be, nothing is written.
-- The cap is far above any number of blocked readers: an older notification than that has no one left to wake.
local waiting_until = 0
local function notify(hint)
  if waiting_until > now then
    redis.call('XADD', notifications, 'MAXLEN', '~', 10000, '*', 's', hint)
  end
end
