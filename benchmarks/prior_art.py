"""The reference: shuffle-sharded queues as they were first published, and bare streams.

The algorithm of the prior art (see docs/internals/words.md), with one message per call and two scripts:

- write: grow or shrink the number of streams in `meta` (shrink only when the higher ones are empty), choose the first
  empty or the shortest of the candidates by XLEN, XADD, notify on a stream of one entry, refresh each key's expiry.
- read: the un-sharded stream if there is one, then XREADGROUP COUNT 1 over the streams, one after the other, from the
  offset in `meta`; a missing group is created on the way. A blocked reader waits on the notifications once, then reads
  again.
- ack is the caller's: XACK and XDEL. len is the sum of XLEN.
"""

from __future__ import annotations

from typing import Any

import redis

from shardq.sharding import shard

WRITE = """
local base, ttl, streams, chosen = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local meta, notifications = base .. ':meta', base .. ':notifications'
local known = tonumber(redis.call('HGET', meta, 'streams') or '0')
if streams > known then
  redis.call('HSET', meta, 'streams', streams)
elseif streams < known then
  local empty = true
  for number = streams, known - 1 do
    if redis.call('XLEN', base .. ':s' .. number) > 0 then empty = false break end
  end
  if empty then redis.call('HSET', meta, 'streams', streams) end
end
local best, fewest
for at = 4, 3 + chosen do
  local length = redis.call('XLEN', base .. ':s' .. ARGV[at])
  if not fewest or length < fewest then best, fewest = ARGV[at], length end
  if length == 0 then break end
end
local key, words = base .. ':s' .. best, {}
for at = 4 + chosen, #ARGV do words[#words + 1] = ARGV[at] end
local id = redis.call('XADD', key, '*', unpack(words))
redis.call('XADD', notifications, 'MAXLEN', '1', '*', 's', best)
redis.call('EXPIRE', key, ttl)
redis.call('EXPIRE', meta, ttl)
redis.call('EXPIRE', notifications, ttl)
return id
"""

READ = """
local base, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local meta = base .. ':meta'
local function take(key, its_group)
  local reply = redis.pcall('XREADGROUP', 'GROUP', its_group, consumer, 'COUNT', 1, 'STREAMS', key, '>')
  if reply and reply.err then
    if not string.find(reply.err, 'NOGROUP') then return reply end
    redis.call('XGROUP', 'CREATE', key, its_group, '0', 'MKSTREAM')
    reply = redis.call('XREADGROUP', 'GROUP', its_group, consumer, 'COUNT', 1, 'STREAMS', key, '>')
  end
  return reply
end
if redis.call('EXISTS', base) == 1 and redis.call('XLEN', base) > 0 then
  local reply = take(base, base)
  if reply then return reply end
end
local state = redis.call('HMGET', meta, 'streams', 'offset')
local streams, offset = tonumber(state[1] or '1'), tonumber(state[2] or '0')
for step = 0, streams - 1 do
  local number = (offset + step) % streams
  local reply = take(base .. ':s' .. number, group)
  if reply then
    redis.call('HSET', meta, 'offset', (number + 1) % streams)
    return reply
  end
end
return false
"""

LEN = """
local total = 0
for number = 0, tonumber(redis.call('HGET', KEYS[1] .. ':meta', 'streams') or '0') - 1 do
  total = total + redis.call('XLEN', KEYS[1] .. ':s' .. number)
end
return total
"""

GROUP, CONSUMER, TTL = "workers", "worker-1", 86_400
Entry = tuple[bytes, bytes, bytes]  # key, entry id, payload


class PriorArt:
    """A queue as above, through redis-py: one EVALSHA per message."""

    def __init__(self, url: str, name: str, streams: int, streams_per_shard: int) -> None:
        self.redis = connect(url)
        self._name, self._streams, self._per_shard = name, streams, streams_per_shard
        self._write, self._read, self._len = (self.redis.script_load(text) for text in (WRITE, READ, LEN))

    def write(self, payload: bytes, shard_key: str) -> Any:
        """Store one message; its id."""
        chosen = shard(shard_key, self._streams, self._per_shard)
        return self.redis.evalsha(
            self._write, 1, self._name, TTL, self._streams, len(chosen), *chosen, "k", shard_key, "p", payload
        )

    def read(self, block: float = 0.0) -> Entry | None:
        """The next message; None when there is none after one wait."""
        found = self._look()
        if found is None and block:
            self._wait(block)
            found = self._look()
        return found

    def ack(self, key: bytes, entry: bytes) -> None:
        """Forget a message, in one round trip."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.xack(key, GROUP, entry)
            pipe.xdel(key, entry)
            pipe.execute()

    def len(self) -> Any:
        """Undelivered and unacknowledged messages."""
        return self.redis.evalsha(self._len, 1, self._name)

    def _look(self) -> Entry | None:
        reply: Any = self.redis.evalsha(self._read, 1, self._name, GROUP, CONSUMER)
        if not reply:
            return None
        key, [[entry, fields]] = reply[0]
        return key, entry, fields[3]

    def _wait(self, block: float) -> None:
        stream = f"{self._name}:notifications"
        try:
            self.redis.xreadgroup(GROUP, CONSUMER, {stream: ">"}, count=1, block=round(block * 1000), noack=True)
        except redis.ResponseError:
            self.redis.xgroup_create(stream, GROUP, "$", mkstream=True)


class Bare:
    """One stream and one group, as plain as Redis has it."""

    def __init__(self, url: str, name: str) -> None:
        self.redis = connect(url)
        self.name = name
        self.redis.xgroup_create(name, GROUP, "0", mkstream=True)

    def write(self, payload: bytes) -> None:
        """One XADD."""
        self.redis.xadd(self.name, {"p": payload})

    def write_many(self, payloads: list[bytes]) -> None:
        """One XADD each, in one round trip."""
        with self.redis.pipeline(transaction=False) as pipe:
            for payload in payloads:
                pipe.xadd(self.name, {"p": payload})
            pipe.execute()

    def read(self, count: int, block: float = 0.0) -> list[tuple[bytes, bytes]]:
        """Entry ids and payloads of up to *count* messages."""
        milliseconds = round(block * 1000) or None
        reply: Any = self.redis.xreadgroup(GROUP, CONSUMER, {self.name: ">"}, count=count, block=milliseconds)
        return [(entry, fields[b"p"]) for entry, fields in reply[0][1]] if reply else []

    def ack(self, entries: list[bytes]) -> None:
        """Forget messages, in one round trip."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.xack(self.name, GROUP, *entries)
            pipe.xdel(self.name, *entries)
            pipe.execute()


def connect(url: str) -> Any:
    """redis-py as it comes, with RESP2 like shardq's connections, and a timeout above every block."""
    return redis.Redis.from_url(url, protocol=2, socket_timeout=30)
