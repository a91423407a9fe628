"""The table of leases: what it takes to hold many of them, in the wheel of a client and by a scan once a second."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

from benchmarks.report import Table, Target, times
from benchmarks.rounds import middle, ratio
from benchmarks.settings import machine
from benchmarks.timers.process import in_process
from benchmarks.timers.size import Rounds, Size
from shardq import Client, Delivery
from shardq.client.leases import Leases, delivered
from shardq.model import Received
from shardq.model.delivery import DeliveryView
from shardq.testing import ManualClock
from shardq.timing import ThreadTimer

WHEEL, SCAN = "in the wheel", "scanned each second"
HELD = (100, 10_000, 100_000)
LEASE = 300.0
SECONDS = 20


class ByHand(ThreadTimer):
    """The timer of a client, without its thread, whose share could not be told from that of others."""

    def _wake(self) -> None:
        pass


class Holder:
    """Leases of the client's deliveries, each of its own end."""

    def __init__(self, how: str) -> None:
        self.clock = ManualClock()
        self.client = Client.from_url("redis://127.0.0.1:1", clock=self.clock)
        self.client.timer = timer = ByHand(clock=self.clock)
        self.client.leases = Leases(timer, self.clock, lambda function: None)
        self.queue, self.how = self.client.queue("q", create=True), how
        self.scanned: set[DeliveryView] = set()

    def take(self, row: Received) -> DeliveryView:
        """Hold one more lease."""
        if self.how == WHEEL:
            return delivered(Delivery, [row], self.queue)[0]
        delivery = DeliveryView(row, self.client.codecs, self.clock)
        self.scanned.add(delivery)
        return delivery

    def settle(self, delivery: DeliveryView) -> None:
        """Hold it no more."""
        if isinstance(delivery, Delivery):
            delivery._lease.settle()
        else:
            self.scanned.discard(delivery)

    def second(self) -> None:
        """A second passes, in which nothing is due."""
        self.clock.advance(1.0)
        self.client.timer.run_due()
        now, due = self.clock.monotonic(), []
        for delivery in self.scanned.copy():
            left = delivery.received.deadline - now
            if left <= 0:
                delivery.lost = True
            elif left < LEASE * 2 / 3:
                due.append(delivery)
        assert not due


def rows(number: int) -> list[Received]:
    """So many rows as reads return them, a few µs apart."""
    ends = (LEASE + at * 5e-6 for at in range(number))
    return [Received("1-1-0", "t", 1, end, b"x", "b", {}, "", 0, 0.0, "0:1-1:1:holder") for end in ends]


def measure(how: str, number: str) -> dict[str, float]:
    """Hold so many leases: µs to take and settle one beside them, ms of CPU a second, bytes each."""
    found, more = rows(int(number)), rows(20_000)
    tracemalloc.start()
    holder = Holder(how)
    before = tracemalloc.get_traced_memory()[0]
    held = [holder.take(row) for row in found]
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    gc.disable()

    def singly() -> None:
        for row in more:
            holder.settle(holder.take(row))

    def seconds() -> None:
        for _ in range(SECONDS):
            holder.second()

    singly()
    took, idle = _cpu(singly), _cpu(seconds)
    gc.enable()
    return {"us": took / len(more) * 1e6, "idle": idle / SECONDS * 1e3, "bytes": size / len(held)}


def _cpu(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def leases(size: Size) -> Table:
    """What 100,000 leases cost while nothing happens."""
    found: dict[str, Rounds] = {}
    for number in [max(10, min(each, size.requests)) for each in HELD]:

        def one(how: str, number: int = number) -> dict[str, float]:
            return in_process("benchmarks.timers.leases", how, number)

        found[f"{number:,}"] = size.take((WHEEL, SCAN), one)
    shown: list[tuple[str, ...]] = [
        (f"{number} {how}", f"{middle(each[how], 'idle'):.3f} ms", _spread(each[how]),
         f"{middle(each[how], 'us'):.2f} µs", f"{middle(each[how], 'bytes'):,.0f}",
         times(ratio(each[how], each[WHEEL], "idle")))
        for number, each in found.items() for how in (WHEEL, SCAN)
    ]  # fmt: skip
    columns = ("leases", "CPU of a second", "rounds, ms", "to take and settle", "bytes, with its delivery",
               "CPU / wheel's")  # fmt: skip
    few, *_, most = found.values()
    more = middle(few[WHEEL], "us") - middle(few[SCAN], "us")
    scanned = ratio(most[SCAN], most[WHEEL], "idle")
    targets = [
        Target("the scan's CPU with the most leases, against the wheel", scanned, 100),
        Target("to take and settle a lease, beside a set that is scanned", more, 1, True, " µs"),
    ]
    context = f"{size.rounds} rounds; {machine()}"
    return Table("timing-leases", "Leases held by one process", context, columns, shown, targets, found)


def _spread(own: list[dict[str, float]]) -> str:
    idle = [each["idle"] for each in own]
    return f"{min(idle):.3f} to {max(idle):.3f}"
