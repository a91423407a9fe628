-- Whether this call may change the queue. It was made for one epoch and moves it on to the one that its caller made up, a
-- nonce: no other call does, not even after a failover that lost this one. So a copy that comes late changes nothing.
-- false: it may. 'OK': an earlier try did it; a write for WAIT to wait for, as in `write`.
local function fenced(epoch, following)
  local is = redis.call('HGET', meta, 'epoch')
  if not is then return 'NOQUEUE' end
  if is == following then
    redis.call('HSET', meta, 'epoch', is)
    return 'OK'
  end
  return is ~= epoch and 'EPOCH'
end
