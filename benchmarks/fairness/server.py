"""The real queue as a discipline: one process writes and reads alternately on an embedded server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.fairness.disciplines import Discipline, shard_key
from shardq import Client, Delivery, Limits, Queue

ACK_EVERY = 100


class Real(Discipline):
    """A queue of the library. With the `salt` of a model it deals the same shards. `payload` is in bytes."""

    def __init__(
        self, client: Client, name: str, settings: dict[str, Any], *, salt: str = "", payload: int = 100
    ) -> None:
        self._queue: Queue = client.queue(name, visibility_timeout=600, **settings)
        self._salt, self._payload = salt, payload
        self._read: list[Delivery] = []
        self._times: list[float] = []  # when each message had been delivered

    def seconds(self, first: int, last: int) -> float:
        """How long it took to deliver the messages from number *first* to *last*; beyond the end, at the mean rate."""
        times = self._times
        pace = (times[-1] - times[0]) / max(1, len(times) - 1)
        begin, end = min(first, len(times) - 1), min(last, len(times) - 1)
        return times[end] - times[begin] + pace * (last - first + 1 - (end - begin))

    def write(self, tenant: int, *messages: int) -> None:
        key = shard_key(tenant, self._salt)
        self._queue.write_many([(self._body(tenant, message), key) for message in messages])

    def write_all(self, tenants: Iterable[int]) -> None:
        batch = [(self._body(tenant, 0), shard_key(tenant, self._salt)) for tenant in tenants]
        if batch:
            self._queue.write_many(batch)

    def read(self) -> tuple[int, int] | None:
        found = self.read_many(1)
        return found[0] if found else None

    def read_many(self, count: int) -> list[tuple[int, int]]:
        found: list[Delivery] = []
        while len(found) < count and (more := self._queue.read_many(count - len(found))):
            found += more  # a read may deliver less than there is
        self._times += [time.perf_counter()] * len(found)
        self._read += found
        if not found or len(self._read) >= ACK_EVERY:
            self._queue.ack_many(self._read)
            self._read.clear()
        return [_message(delivery.payload) for delivery in found]

    def _body(self, tenant: int, message: int) -> bytes:
        return (b"%d %d" % (tenant, message)).ljust(self._payload)

    def limit(self, limits: Mapping[int, Limits]) -> None:
        """Give tenants limits, before anything is written."""
        self._queue.declare()
        self._queue.set_limits({shard_key(tenant, self._salt): each for tenant, each in limits.items()})

    def drop(self) -> None:
        """Delete the queue, to make room on the server for the next one."""
        self._queue.ack_many(self._read)
        self._queue.purge()


def _message(payload: bytes) -> tuple[int, int]:
    tenant, _, message = payload.partition(b" ")
    return int(tenant), int(message)
