"""What a test of the suite runs in: one kind of client on one server, and a look behind it."""

from __future__ import annotations

from typing import Any, cast

import redis

from shardq import AsyncClient, Client, Delivery, Queue
from shardq.protocol.keys import QueueKeys
from tests.clients import Bridge, Loop
from tests.conformance.census import Census, take, take_all

CLUSTER = "redis+cluster://"
_ELAPSE = """
local by = tonumber(ARGV[1])
for at = 2, 3 do
  for _, member in ipairs(redis.call('ZRANGE', KEYS[at], 0, -1)) do
    local score = redis.call('ZSCORE', KEYS[at], member)
    if tonumber(score) < 9e15 then redis.call('ZINCRBY', KEYS[at], -by, member) end
  end
end
for _, member in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  local size, from = string.match(member, '^(%d+):()')
  if size then
    local start = from + size + 1
    local ms = string.sub(member, start, start + 13)
    redis.call('ZREM', KEYS[4], member)
    local moved = string.format('%014.0f', ms - by)
    redis.call('ZADD', KEYS[4], 0, string.sub(member, 1, start - 1) .. moved .. string.sub(member, start + 14))
  end
end
local function earlier(digits) return string.format('%013.0f', digits - by) end
for _, member in ipairs(redis.call('ZRANGE', KEYS[7], 0, -1)) do
  local size, from = string.match(member, '^(%d+):()')
  local start = size and from + size + 1
  if start and string.sub(member, start, start) == 'd' then -- when it came due
    redis.call('ZREM', KEYS[7], member)
    local moved = string.format('%014.0f', string.sub(member, start + 1, start + 14) - by)
    redis.call('ZADD', KEYS[7], 0, string.sub(member, 1, start) .. moved .. string.sub(member, start + 15))
  end
end
local errors = redis.call('HGETALL', KEYS[5])
for at = 1, #errors, 2 do
  redis.call('HSET', KEYS[5], errors[at], (string.gsub(errors[at + 1], '^%d+', earlier)))
end
local bodies = redis.call('HGETALL', KEYS[6])
for at = 1, #bodies, 2 do
  local head, size, from = string.match(bodies[at + 1], '^(%w+[:=](%d+):)()')
  if string.find(bodies[at], '^%d') and head then
    local ends = from + size - 1
    local due = '^(%d+:[^t]* t)(' .. string.rep('%d', 13) .. ')'
    local rest, count = string.gsub(string.sub(bodies[at + 1], ends + 1), due, function(begin, digits)
      return begin .. earlier(digits)
    end)
    if count > 0 then redis.call('HSET', KEYS[6], bodies[at], string.sub(bodies[at + 1], 1, ends) .. rest) end
  end
end
local lease_at = tonumber(redis.call('HGET', KEYS[1], 'lease_at'))
if lease_at < 9e12 then redis.call('HSET', KEYS[1], 'lease_at', string.format('%.0f', lease_at - by)) end
local before, due_at, rest = string.match(redis.call('HGET', KEYS[1], 'line'), '^(%S+ %S+ %S+ %S+ )(%S+)(.*)$')
if tonumber(due_at) < 9e12 then
  redis.call('HSET', KEYS[1], 'line', before .. string.format('%.3f', due_at - by) .. rest)
end
"""


class World:
    """Makes clients of one kind for one server. `raw` is a plain redis-py client of that server."""

    fake = False
    partitions = 0
    """How many each queue has that is opened here; 0: as the client says."""

    def __init__(self, url: str, raw: Any, loop: Loop | None = None) -> None:
        self.url = url
        self.raw = raw
        self._loop = loop
        self._cluster = isinstance(raw, redis.RedisCluster)
        self._clients: list[Client] = []

    def client(self, **settings: Any) -> Client:
        """A new client; it is closed with the test."""
        client = self._make(**settings)
        self._clients.append(client)
        return client

    def _make(self, **settings: Any) -> Client:
        if self._loop is None:
            return Client.from_url(self.url, **settings)
        return cast("Client", Bridge(AsyncClient.from_url(self.url, **settings), self._loop))

    def close(self) -> None:
        """Close what the test made."""
        for client in self._clients:
            client.close()

    def elapse(self, queue: Queue, seconds: float) -> None:
        """Let *seconds* pass for leases and delays: move every deadline and due time back by that much.

        To the scripts this is the same as waiting, since both are compared with the server's clock only.
        """
        for keys in keys_of(queue):
            names = (keys.meta, keys.leases, keys.due, keys.delayed, keys.errors, keys.bodies, keys.returned)
            self.raw.eval(_ELAPSE, len(names), *names, round(seconds * 1000))
        if (parts := queue.state.parts) is not None:
            for number in range(len(parts.states)):  # what a client has heard is old then
                parts.turns.forget(number)

    def census(self, queue: Queue) -> Census:
        """A full count of the queue's raw keys; of one with partitions, of all of them together."""
        if queue.state.parts is not None:
            return take_all(self.raw, keys_of(queue))
        return take(self.raw, queue.state.keys, queue.state.config.legacy_stream)

    def blocked(self, queue: Queue) -> int:
        """How many clients block on the node that serves the queue; one has a read at each partition that is there."""
        state = queue.state
        wanted = int(state.requested.partitions) if state.parts is None else len(state.parts.states)
        blocked = int(self.node(state.keys.meta).info("clients")["blocked_clients"])
        return blocked if self._cluster else blocked // wanted

    def node(self, key: str) -> Any:
        """A plain client of the server that has *key*: of a cluster, the one node."""
        return self.raw.get_redis_connection(self.raw.get_node_from_key(key)) if self._cluster else self.raw

    def stored(self) -> set[str]:
        """Every key on the server."""
        where = {"target_nodes": "primaries"} if self._cluster else {}
        return {key.decode() for key in self.raw.keys("*", **where)}

    def dump(self) -> dict[str, Any]:
        """Everything on the server, by key. (DUMP would also show how far Redis has come with rehashing.)"""
        return {key: self._content(key) for key in sorted(self.stored())}

    def _content(self, key: str) -> Any:
        raw = self.raw
        match raw.type(key):
            case b"hash":
                return raw.hgetall(key)
            case b"zset":
                return raw.zrange(key, 0, -1, withscores=True)
            case b"set":
                return raw.smembers(key)
            case b"stream":
                return raw.xrange(key), raw.xinfo_groups(key), raw.xinfo_stream(key)["last-generated-id"]
        return raw.get(key)


class FakeWorld(World):
    """The sync client on fakeredis."""

    fake = True

    def __init__(self) -> None:
        import fakeredis

        self._server = fakeredis.FakeServer()
        super().__init__("", fakeredis.FakeRedis(server=self._server, protocol=2))

    def _make(self, **settings: Any) -> Client:
        from shardq.testing import fake_client

        return fake_client(server=self._server, **settings)


def keys_of(queue: Queue) -> list[QueueKeys]:
    """The keys of a queue; of one with partitions, those of each."""
    parts = queue.state.parts
    return [queue.state.keys] if parts is None else [state.keys for state in parts.states]


def drained(queue: Queue) -> list[Delivery]:
    """Everything deliverable; a read of many streams may end a round early, so it is repeated until nothing is left."""
    found: list[Delivery] = []
    while batch := queue.read_many(1000):
        found += batch
    return found


def raw_client(url: str) -> Any:
    """A plain client: bytes, RESP2."""
    if url.startswith(CLUSTER):
        return redis.RedisCluster.from_url(f"redis://{url.removeprefix(CLUSTER)}", protocol=2)
    return redis.Redis.from_url(url, protocol=2)
