"""Histories of a queue that the engine itself has made: jobs of a known length and handlers by a simulated clock.

The server is a real one. So what the engine decides is true, and its journal tells it as in production.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shardq import Delivery, Empty
from shardq.jobs.making import LiveQueue, make
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import clocked_client

LEASE = 100_000.0


class Played:
    """A queue with so many handlers, each with one job at a time. Payloads say how many seconds a job takes."""

    def __init__(self, server: Server, handlers: int = 4, *, batch: int = 1, **settings: Any) -> None:
        self.clock = ManualClock()
        client, _ = clocked_client(server, self.clock)
        usual: dict[str, Any] = {"streams": 8, "streams_per_shard": 2, "journal": 1_000_000}
        self.queue = client.queue("jobs", create=True, visibility_timeout=LEASE, **usual | settings)
        self.queue.declare()
        self._free, self._batch = handlers, batch
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._number = 0
        self.spent: dict[str, float] = {}
        """How many seconds of handlers each shard key has had."""

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic()

    def at(self, moment: float, action: Callable[[], object]) -> None:
        """Do something at this moment."""
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, action))

    def write(self, key: str, seconds: float, count: int = 1, **more: Any) -> None:
        """Write so many jobs."""
        for _ in range(count):
            self.queue.write(seconds, shard_key=key, **more)

    def each(self, keys: Iterable[str], seconds: float, count: int) -> None:
        """Write so many jobs of each of these keys, one after the other."""
        found = list(keys)
        for at in range(0, count * len(found), 500):
            numbers = range(at, min(at + 500, count * len(found)))
            self.queue.write_many([(seconds, found[number % len(found)]) for number in numbers])

    def until(self, moment: float) -> Played:
        """Work until this moment."""
        self._take()
        while self._events and self._events[0][0] <= moment:
            at, _, action = heapq.heappop(self._events)
            self.clock.advance(at - self.now)
            action()
            self._take()
        self.clock.advance(moment - self.now)
        return self

    def table(self, folder: Path) -> Path:
        """Add what happened so far to the table of jobs in this folder."""
        source = LiveQueue(self.queue.client, [self.queue.name])
        make(source, folder, source.seen)
        return folder

    def _take(self) -> None:
        while self._free:
            try:
                held = self.queue.read_many(min(self._free, self._batch)) if self._batch > 1 else [self.queue.read()]
            except Empty:
                return
            if not held:
                return
            for each in held:
                self._free -= 1
                self._begin(each)

    def _begin(self, delivery: Delivery) -> None:
        seconds = delivery.payload
        self.at(self.now + seconds, lambda: self._end(delivery, seconds))

    def _end(self, delivery: Delivery, seconds: float) -> None:
        delivery.ack(cost=seconds)
        self._free += 1
        key = str(delivery.shard_key)
        self.spent[key] = self.spent.get(key, 0.0) + seconds
