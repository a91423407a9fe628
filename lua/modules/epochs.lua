-- The queue's epoch, a nonce that changes with what the queue is: its number of streams, its settings, its assignment.

-- Says whether a call may change the queue. The call was made for one epoch and moves the queue on to `following`, which its
-- caller made up and no other call does, not even after a failover that lost this one. So a copy of it that comes late
-- changes nothing. Returns false if the call may go on, or what to answer instead. 'OK' means that an earlier try did it;
-- the epoch is then written once more, since WAIT waits for what its own connection wrote last.
local function check_epoch(q, epoch, following)
  local present = redis.call('HGET', q.meta, 'epoch')
  if not present then return 'NOQUEUE' end
  if present == following then
    redis.call('HSET', q.meta, 'epoch', present)
    return 'OK'
  end
  return present ~= epoch and 'EPOCH'
end
