-- Messages of a write that are not delivered at once, but lie in the store of delayed ones until a read lets them in: those with a
-- delay, and those with a unique key, which are due at once.
--- @use accounts, notifications, schedule, shards

-- Delays messages, {id, shard, shard_key, delay in ms} each, and wakes the readers that must know. With `counts` they count in the
-- accounts of their shard keys.
local function delay_all(q, messages, counts)
  q.due_times, q.buckets = {}, {}
  local is_soon, at_once = false, 0
  for _, message in ipairs(messages) do
    delay_message(q, message.id, spell_shard(q, message.shard), message.shard_key, q.now + message.delay)
    if counts then count_delayed(q, message.shard_key, 1) end
    is_soon = is_soon or message.delay < SOON
    if message.delay == 0 then at_once = at_once + 1 end
  end
  save_due_times(q)
  if is_soon then notify_reader(q, '') end
  for _ = 2, at_once do notify_reader(q, '') end
end
