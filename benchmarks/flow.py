"""flow: how the sender's window adapts, on a model of a link with a storage behind it, one event after the other.

Messages share a link. What is lost on the way comes a round trip late, and so does all behind it, as TCP has it. The
storage takes a time for each batch, and acks what it stored. The reference is the fixed window of 100 of the seed
(pl-rants, 2020). No clock runs: the figures are the same on any machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import median
from typing import Any

import numpy as np

from benchmarks.report import Table, Target
from benchmarks.settings import Place
from shardq.flow import Fixed, Gradient, Limit, Sender, Sent, Vegas

SIZE = 17_500  # bytes of a message, as the seed's were on average
SEGMENT = 1448
SPAN = 30.0  # seconds of a run
STORING = 0.002  # seconds that the storage takes for what is there


@dataclass(frozen=True)
class Case:
    """A link: bits per second, seconds of a round trip, loss of segments, and what changes at half-time."""

    name: str
    bandwidth: float = 40e6
    round_trip: float = 0.02
    loss: float = 0.0
    then: float = 1.0  # the bandwidth at half-time, of that at first
    longer: float = 1.0  # the round trip at half-time, of that at first
    senders: int = 1


CASES = (
    Case("1 ms", round_trip=0.001),
    Case("20 ms"),
    Case("100 ms", round_trip=0.1),
    Case("300 ms", round_trip=0.3),
    Case("20 ms, 1 % loss", loss=0.01),
    Case("20 ms, half the bandwidth", then=0.5),
    Case("20 ms, then 100 ms", longer=5.0),
    Case("20 ms, 4 Mbit/s", bandwidth=4e6),
    Case("20 ms, 2 senders", senders=2),
)
LIMITS: dict[str, Callable[[], Limit]] = {
    "fixed 100": Fixed,
    "Vegas": Vegas,
    "Vegas 32 to 64": lambda: Vegas(low=32, high=64),
    "Gradient": Gradient,
}


@dataclass
class Link:
    """The link, its storage and its senders, in one event loop of its own."""

    case: Case
    limits: list[Limit]
    rng: Random
    now: float = 0.0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    order: Any = field(default_factory=count)
    free_at: float = 0.0
    last: float = 0.0
    stored: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    arrived: list[tuple[int, int, float]] = field(default_factory=list)
    is_storing: bool = False
    again: int = 0

    def run(self) -> None:
        """Let all senders send as much as they may for SPAN seconds."""
        self.senders = [Sender[int](limit) for limit in self.limits]
        self.stored, self.sent = [0] * len(self.limits), dict[tuple[int, int], float]()
        for each in range(len(self.senders)):
            self.at(0.0, lambda each=each: self.fill(each))  # type: ignore[misc]
        while self.events and self.events[0][0] < SPAN:
            self.now, _, event = heapq.heappop(self.events)
            event()

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Have something happen later."""
        heapq.heappush(self.events, (when, next(self.order), event))

    @property
    def bandwidth(self) -> float:
        """Bits per second now."""
        return self.case.bandwidth * (self.case.then if self.now > SPAN / 2 else 1)

    @property
    def delay(self) -> float:
        """Seconds of one way now."""
        return self.case.round_trip / 2 * (self.case.longer if self.now > SPAN / 2 else 1)

    def fill(self, who: int) -> None:
        """Send what the window has room for; there is always more."""
        sender = self.senders[who]
        for _ in range(sender.credit):
            sender.send(next(self.order))
        while (step := sender.next(self.now)) is not None:
            self.sent.setdefault((who, step.id), self.now)
            self.send(who, step.id)
            self.at(self.now + step.timeout, lambda step=step: self.time_out(who, step))  # type: ignore[misc]

    def time_out(self, who: int, step: Sent[int]) -> None:
        """No ack has come, unless one has."""
        if self.senders[who].timeout(step.id, step.attempt, self.now):
            self.again += 1
            self.fill(who)

    def send(self, who: int, message: int) -> None:
        """Put a message on the link. TCP delivers what is lost later, with all that is behind it."""
        self.free_at = max(self.now, self.free_at) + SIZE * 8 / self.bandwidth
        arrives = self.free_at + self.delay
        if self.rng.random() < 1 - (1 - self.case.loss) ** (SIZE // SEGMENT + 1):
            arrives += 2 * self.delay
        self.last = max(self.last, arrives)
        self.at(self.last, lambda: self.arrive(who, message))

    def arrive(self, who: int, message: int) -> None:
        """A message reaches the gateway."""
        self.arrived.append((who, message, self.now))
        if not self.is_storing:
            self.store()

    def store(self) -> None:
        """Store all that is there; what comes meanwhile waits."""
        batch, self.arrived, self.is_storing = self.arrived, [], True

        def done() -> None:
            self.is_storing = False
            self.at(self.now + self.delay, lambda: self.ack(batch))
            if self.arrived:
                self.store()

        self.at(self.now + STORING, done)

    def ack(self, batch: list[tuple[int, int, float]]) -> None:
        """Acks reach their senders."""
        for who, message, _ in batch:
            if self.senders[who].ack_received(message, self.now):
                self.stored[who] += 1
                self.waits.append(self.now - self.sent.pop((who, message)))
        for who in {who for who, _, _ in batch}:
            self.windows.append(self.senders[who].window)
            self.fill(who)


def run(place: Place) -> list[Table]:
    """One table: each limit on each link."""
    rows: list[tuple[str, ...]] = []
    worst, data = dict.fromkeys(LIMITS, 1.0), {}
    delays: dict[str, list[float]] = {name: [] for name in LIMITS}
    for case in CASES:
        for name, limit in LIMITS.items():
            link = Link(case, [limit() for _ in range(case.senders)], Random(1))
            link.run()
            carried = sum(link.stored) * SIZE * 8 / SPAN
            most = case.bandwidth * (1 + case.then) / 2
            base = case.round_trip * (1 + case.longer) / 2 + SIZE * 8 / case.bandwidth + STORING
            mid, late = median(link.waits), float(np.percentile(link.waits, 99))
            shares = f"{min(link.stored) / max(link.stored):.2f}" if case.senders > 1 else ""
            rows.append(
                (
                    case.name, name, f"{carried / most:.0%}", f"{mid * 1000:,.0f} ms", f"{late * 1000:,.0f} ms",
                    f"{mid / base:.1f} x", f"{median(link.windows):,.0f}", f"{link.again:,}", shares,
                )
            )  # fmt: skip
            worst[name] = min(worst[name], carried / most)
            delays[name].append(mid / base)
            data[f"{case.name}: {name}"] = {"used": carried / most, "p50": mid, "p99": late}
    columns = (
        "link",
        "window",
        "of the bandwidth",
        "ack p50",
        "p99",
        "p50 of an empty link's",
        "messages",
        "sent again",
        "shares",
    )
    targets = [Target(f"{name}: least part of the bandwidth", value, 0.9, unit="") for name, value in worst.items()]
    context = f"40 Mbit/s where no other is named, messages of {SIZE:,} B, {SPAN:.0f} s in a model"
    return [Table("flow", "Flow: how windows adapt", context, columns, rows, targets, data)]
