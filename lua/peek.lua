#!lua flags=no-writes
-- peek: look at what some streams have undelivered, in the order in which it would be delivered, without delivering any.
-- KEYS[1] meta: whether the queue is fair
-- KEYS[2] lens: undelivered and cursor per stream
-- KEYS[3] redelivery: the redelivery queue of each stream, one after the other
-- KEYS[4] bodies: bodies of delayed messages
-- KEYS[5] attempts: what is known of messages delivered before
-- KEYS[6..] streams: those to look at
-- ARGV[1] most: how many messages of each stream to look at
-- ARGV[2] bytes: after so many bytes no more messages are looked at
-- ARGV[3] shard_key: only its messages, '' for all
-- ARGV[4] payloads: '1' with payloads; else the size of each payload is in its place
-- ARGV[5..] points: two for each stream: its number ('4096' for the legacy stream), and after which point (see undelivered.lua)
-- Reply: of each stream {{{how many of these stand before it, point behind it, handle, what is known of it, fields}, ...},
--        point behind all that was looked at, how many that were, '1' if nothing comes after it}
--- @use undelivered
local q = {
  meta = KEYS[1], lens = KEYS[2], redelivery = KEYS[3], bodies = KEYS[4], attempts = KEYS[5],
  most_bytes = tonumber(ARGV[2]), shard_key = ARGV[3], has_payloads = ARGV[4] == '1', bytes = 0,
}
local most, found = tonumber(ARGV[1]), {}
q.is_fair = redis.call('HGET', q.meta, 'fair') == '1'
for at = 6, #KEYS do
  local number, point, key = ARGV[2 * at - 7], ARGV[2 * at - 6], KEYS[at]
  local items, is_over = list_undelivered(q, number, key, point, most)
  local last = items[#items]
  found[at - 5] = {spell_rows(q, key, items), last and last[3] or point, #items, is_over and '1' or ''}
end
return found
