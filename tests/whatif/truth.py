"""What is true of a queue under a setting: the queue itself, run with it.

The driver knows nothing of `shardq.whatif`. It reads and acks by the client, on the imitation of a server, whose clock
it moves. Handlers are moments at which they end. Nothing is read ahead.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardq import Client, Delivery, Limits, Queue
from shardq.model import Plan
from shardq.testing import ManualClock, fake_client

BEGAN = 1_700_000_000.0
POLL = 0.1
"""Seconds after which a free slot looks again while something waits for a token of its rate."""


@dataclass(frozen=True)
class Work:
    """A job: written `at` (seconds since the begin), by whom, and for how long each of its tries runs.

    A try that is not the last one fails, and the next begins after a delay of `backoff` seconds, doubled each time.
    """

    at: float
    key: str
    ran: tuple[float, ...]
    delay: float = 0.0
    backoff: float = 10.0
    task: str = ""


@dataclass(frozen=True)
class Way:
    """How a queue is run: workers that come and go, as (slots, from, to), and all that is set at the begin or later."""

    workers: Sequence[tuple[int, float, float]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, Limits | str] = field(default_factory=dict)
    plans: Mapping[str, Plan] = field(default_factory=dict)
    later: Sequence[tuple[float, Callable[[Queue], object]]] = ()


class Driver:
    """Runs *works* in *way*."""

    def __init__(
        self, works: Sequence[Work], way: Way, client: Client | None = None, clock: ManualClock | None = None
    ) -> None:
        self.works, self.way = works, way
        self.clock = ManualClock(BEGAN) if clock is None else clock
        settings = {"streams": 16, "streams_per_shard": 4, "visibility_timeout": 3_600.0, "journal": 1_000_000}
        self.queue = (client or fake_client(clock=self.clock)).queue("q", **{**settings, **way.settings})
        self.first: dict[int, float] = {}
        self.tried = [0] * len(works)
        self.left = len(works)
        self.busy: list[tuple[float, int, Delivery]] = []
        self.order = 0
        self.moments: list[tuple[float, int, int]] = []
        self.has_rates = "rate" in repr((way.settings, way.limits, way.plans))

    def run(self) -> list[float]:
        """Run it until all is done. Return for how long each job waited for its first delivery."""
        self._set_up()
        for number, work in enumerate(self.works):
            self._plan(work.at, 0, number)
        for number, (at, _) in enumerate(self.way.later):
            self._plan(at, 1, number)
        for _, begin, end in self.way.workers:
            self._plan(begin)
            self._plan(end)
        while self.left:
            while self.moments and self.moments[0][0] <= self.now + 1e-9:
                self._happen(*heapq.heappop(self.moments)[1:])
            while self.busy and self.busy[0][0] <= self.now + 1e-9:
                self._end(heapq.heappop(self.busy)[2])
            self._read()
            self._move()
        return [self.first[number] - work.at - work.delay for number, work in enumerate(self.works)]

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def _set_up(self) -> None:
        self.queue.declare()
        for name, plan in self.way.plans.items():
            self.queue.set_plan(name, **plan.settings())
        if self.way.weights:
            self.queue.set_weights(dict(self.way.weights.items()))
        if self.way.limits:
            self.queue.set_limits(dict(self.way.limits.items()))

    def _happen(self, kind: int, number: int) -> None:
        if kind == 0:
            work = self.works[number]
            self.queue.write({"number": number}, shard_key=work.key, delay=work.delay or None)
            self._plan(work.at + work.delay)
        elif kind == 1:
            self.way.later[number][1](self.queue)

    def _end(self, delivery: Delivery) -> None:
        number = delivery.payload["number"]
        self.tried[number] += 1
        tries = len(self.works[number].ran)
        if self.tried[number] < tries:
            delay = self.works[number].backoff * 2 ** (self.tried[number] - 1)
            delivery.nack(delay=delay)
            self._plan(self.now + delay)
            return
        delivery.ack()
        self.left -= 1

    def _plan(self, at: float, kind: int = 2, number: int = 0) -> None:
        heapq.heappush(self.moments, (at, kind, number))

    def _slots(self) -> int:
        there = sum(slots for slots, begin, end in self.way.workers if begin <= self.now + 1e-9 < end)
        return there - len(self.busy)

    def _read(self) -> None:
        while self._slots() > 0:
            found = self.queue.read_many(1)
            if not found:
                return
            number = found[0].payload["number"]
            self.first.setdefault(number, self.now)
            self.order += 1
            heapq.heappush(self.busy, (self.now + self.works[number].ran[self.tried[number]], self.order, found[0]))

    def _move(self) -> None:
        """Move the clock to what happens next; by a little, if something may wait for a token."""
        moments = [each[0][0] for each in (self.moments, self.busy) if each]
        if self.has_rates and self._slots() > 0 and self.queue.stats().backlog:
            moments.append(self.now + POLL)
        if self.left:
            self.clock.advance(max(0.0, min(moments) - self.now))
