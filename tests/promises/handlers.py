"""Handlers that work on a queue by a simulated clock, as those of a worker do: an hour of theirs takes seconds."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from shardq import Delivery, Empty
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import clocked_client

Length = Callable[[], float]
"""Draws how many seconds a job takes."""

WAITING = 6
"""Jobs of a flood that wait at any time."""


class ServerClock(ManualClock):
    """The clock of a server, which may be set: it is so many seconds *ahead* of the one of its clients."""

    ahead = 0.0

    def wall(self) -> float:
        """Seconds since the Unix epoch, by the server."""
        return super().wall() + self.ahead


class Handlers:
    """So many handlers, each with one job at a time, whose leases are extended whenever a third of them has passed.

    `waits` has for how many seconds each job of a tenant waited for a handler.
    """

    def __init__(self, server: Server, count: int, *, lease: float = 300.0) -> None:
        self.clock = ServerClock()
        self._client, _ = clocked_client(server, self.clock)
        self._lease = lease
        settings: dict[str, Any] = {"streams": 64, "streams_per_shard": 6, "max_deliveries": 1000}
        self.queue = self._client.queue("jobs", create=True, visibility_timeout=lease, **settings)
        self.queue.declare()
        self._free = count
        self._given: Counter[str] = Counter()
        self._busy: dict[int, tuple[str, float]] = {}  # for whom, and since when
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.told: dict[str, float] = {}
        """What part of their time the jobs of a tenant say that they cost; all of it if nothing is said."""
        self.lost: set[str] = set()
        """Tenants whose jobs nobody settles: their leases end."""
        self._floods: dict[str, Length] = {}
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._number = 0

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic()

    def at(self, moment: float, action: Callable[[], object]) -> None:
        """Do something at this moment."""
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, action))

    def write(self, tenant: str, seconds: float | None = None) -> None:
        """Write a job that takes so long; None: as long as those of the tenant's flood do when it begins."""
        self.queue.write((seconds, self.now), shard_key=tenant)

    def flood(self, tenants: Iterable[str], length: Length) -> None:
        """Let some jobs of these tenants wait at any time from now on."""
        for tenant in tenants:
            self._floods[tenant] = length
            for _ in range(WAITING):
                self.write(tenant)

    def quiet(self, tenant: str, seconds: float, gap: Length, until: float) -> None:
        """Write one job of this tenant at a time, with such gaps between them, until that moment."""

        def write() -> None:
            self.write(tenant, seconds)
            self.quiet(tenant, seconds, gap, until)

        moment = self.now + gap()
        if moment < until:
            self.at(moment, write)

    def until(self, moment: float) -> None:
        """Work until this moment."""
        self._take()
        while self._events and self._events[0][0] <= moment:
            at, _, action = heapq.heappop(self._events)
            self.clock.advance(at - self.now)
            action()
            self._take()
        self.clock.advance(moment - self.now)

    def given(self) -> Counter[str]:
        """How many seconds of handlers each tenant has had so far."""
        given = Counter(self._given)
        for tenant, since in self._busy.values():
            given[tenant] += self.now - since  # type: ignore[assignment]
        return given

    def during(self, seconds: float) -> Counter[str]:
        """Work for so long. Return how many seconds of handlers each tenant has had of this."""
        before = self.given()
        self.until(self.now + seconds)
        return self.given() - before

    def _take(self) -> None:
        while self._free:
            try:
                delivery = self.queue.read()
            except Empty:
                return
            self._begin(delivery)

    def _begin(self, delivery: Delivery) -> None:
        tenant, (seconds, written) = str(delivery.shard_key), delivery.payload
        self._free -= 1
        self._number += 1
        number = self._number
        self._busy[number] = (tenant, self.now)
        self.waits[tenant].append(self.now - written)
        if seconds is None:
            self.write(tenant)
            seconds = self._floods[tenant]()
        if tenant in self.lost:
            self.at(self.now + self._lease, lambda: self._let_go(number))
            return
        end = self.now + seconds
        self.at(end, lambda: self._end(delivery, number, seconds))
        self._extend_later(delivery, end)

    def _extend_later(self, delivery: Delivery, end: float) -> None:
        moment = self.now + self._lease / 3
        if moment < end:
            self.at(moment, lambda: self._extend(delivery, end))

    def _extend(self, delivery: Delivery, end: float) -> None:
        delivery.extend(self._lease)
        self._extend_later(delivery, end)

    def _end(self, delivery: Delivery, number: int, seconds: float) -> None:
        told = self.told.get(str(delivery.shard_key))
        delivery.ack(cost=None if told is None else seconds * told)
        self._let_go(number)

    def _let_go(self, number: int) -> None:
        tenant, since = self._busy.pop(number)
        self._given[tenant] += self.now - since  # type: ignore[assignment]
        self._free += 1
