"""The real queue as a discipline: one writer and one reader on an embedded server, one message at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.fairness.disciplines import shard_key
from shardq import Client, Delivery, Queue

ACK_EVERY = 100


class Real:
    """A queue of the library; `salt` as for the models, so that both deal the same shards."""

    def __init__(self, client: Client, name: str, settings: dict[str, Any], *, salt: str = "") -> None:
        self._queue: Queue = client.queue(name, visibility_timeout=600, **settings)
        self._salt = salt
        self._read: list[Delivery] = []

    def write(self, tenant: int, *messages: int) -> None:
        key = shard_key(tenant, self._salt)
        self._queue.write_many([(b"%d %d" % (tenant, message), key) for message in messages])

    def read(self) -> tuple[int, int] | None:
        found = self._queue.read_many(1)
        self._read += found
        if not found or len(self._read) == ACK_EVERY:
            self._queue.ack_many(self._read)
            self._read.clear()
        if not found:
            return None
        tenant, _, message = found[0].payload.partition(b" ")
        return int(tenant), int(message)
