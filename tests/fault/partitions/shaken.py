"""Writers, readers and one that counts, in threads; each logs what it does, so that it can be judged afterwards."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

from shardq import BackendError, Queue
from tests.clients import CLIENT_KINDS, ClientKind, opened
from tests.soak.history import History, history, verdict
from tests.soak.hour.events import typed
from tests.soak.load import Habits, Log, consume
from tests.soak.sums import Sums
from tests.waiting import eventually

Events = Sequence[dict[str, Any]]
Work = Callable[[Queue, Log], None]
HABITS = Habits(tenants=40, batch=8, lease=30.0, delay=0.02, late=0.0, nack=0.0, extend=0.01)
"""A lease is longer than any outage: what is delivered once more while nothing was lost was delivered twice."""

PAUSE = 0.05
"""Seconds between two writes of one writer, at most, and between two counts."""

END = 120.0
"""Seconds in which all must be done; a bound for a busy machine."""


class Load:
    """What works on one queue, with clients of their own."""

    def __init__(self, url: str, queue: str, seed: int) -> None:
        self._where, self._seed = (url, queue), seed
        self._writing, self._reading, self.failed = Event(), Event(), list[BaseException]()
        self._threads: dict[str, Thread] = {}
        self.events: list[dict[str, Any]] = []

    @contextmanager
    def begun(self) -> Iterator[None]:
        """All of them work, until `end` or an error."""
        for kind in CLIENT_KINDS:
            self._start(f"p-{kind}", kind, self._write)
            self._start(f"c-{kind}", kind, self._consume)
        self._start("sums", "sync", self._count)
        try:
            eventually(lambda: self.failed or self.written() > 50, END)
            yield
        finally:
            self._stop(self._writing)
            self._stop(self._reading)

    def end(self, is_drained: Callable[[], bool]) -> None:
        """Let them end when all is done."""
        self._stop(self._writing)
        eventually(lambda: self.failed or is_drained(), END, every=0.1, what="all is done")
        self._stop(self._reading)
        assert self.failed == []

    def _stop(self, over: Event) -> None:
        """Say that it is over, and wait for those whom that concerns."""
        over.set()
        for name, thread in self._threads.items():
            if over is self._reading or not name.startswith("c-"):
                thread.join(END)

    def written(self) -> int:
        """How many messages were written until now."""
        return sum(len(each["ids"]) for each in [*self.events] if each["e"] == "wrote")

    def works(self) -> None:
        """Wait until each writer and each reader has done something that it began after this call."""
        since = len(self.events)

        def has_worked() -> bool:
            seen = Counter(each["name"] for each in self.events[since:] if each["e"] in ("wrote", "settled"))
            return len(seen) == 2 * len(CLIENT_KINDS) and min(seen.values()) > 2

        eventually(lambda: self.failed or has_worked(), END, what="each of them goes on")
        assert self.failed == []

    def _start(self, name: str, kind: ClientKind, work: Work) -> None:
        def run() -> None:
            try:
                with ExitStack() as stack:
                    client = stack.enter_context(opened(kind, self._where[0], timeout=60))
                    work(client.queue(self._where[1], create=False), Noted(self.events, name))
            except BaseException as error:  # noqa: BLE001 (the test raises it)
                self.failed.append(error)

        self._threads[name] = Thread(target=run, name=name)
        self._threads[name].start()

    def _write(self, queue: Queue, log: Log) -> None:
        rng, at = random.Random(f"{self._seed} {log.name}"), 0
        while not self._writing.is_set():
            size = 1 if rng.random() < 0.5 else rng.randint(2, HABITS.batch)
            values = [f"{log.name}.{number}" for number in range(at, at + size)]
            at += size
            some = [(each, f"tenant-{rng.randrange(HABITS.tenants)}") for each in values]
            log.add("try", values=values, at=time.monotonic())
            ids = [queue.write(some[0][0], shard_key=some[0][1])] if size == 1 else queue.write_many([*some])
            log.add("wrote", values=values, ids=ids, at=time.monotonic())
            self._writing.wait(rng.uniform(0, PAUSE))

    def _consume(self, queue: Queue, log: Log) -> None:
        consume(queue, log, HABITS, self._reading)

    def _count(self, queue: Queue, log: Log) -> None:
        while not self._writing.is_set():
            asked = time.monotonic()
            try:
                told = queue.len(timeout=5)
            except BackendError:  # a partition did not answer: then there is no sum
                continue
            log.add("counted", told=told, asked=asked, at=time.monotonic())
            self._writing.wait(PAUSE)


class Noted(Log):
    """A log in memory."""

    def __init__(self, events: list[dict[str, Any]], name: str) -> None:
        self._events, self.name = events, name

    def add(self, event: str, **facts: object) -> None:
        """Append one event."""
        self._events.append({"e": event, "name": self.name, **facts})

    def close(self) -> None:
        """There is no file."""


def found_in(events: Events) -> History:
    """What happened."""
    return history(typed(each) for each in events if each["e"] != "counted")


def broken(found: History) -> dict[str, list[str]]:
    """Every broken promise by name. What came late to a reader goes back uncounted, so counts tell no order here."""
    return {name: some for name, some in verdict(found).items() if name != "out of order"}


def again(found: History) -> list[str]:
    """The deliveries that were not the first of their message: at least once allows them."""
    return [lease.value for lease in found.leases if lease.count > 1]


def out_of_bounds(events: Events) -> list[str]:
    """The sums that do not count what was there all the time of the call, or count what never was."""
    sums = Sums(found_in(events))
    strange = []
    for each in events:
        if each["e"] == "counted":
            least, most = sums.undone(each["asked"], each["at"])
            if not least <= each["told"] <= most:
                strange.append(f"{each['told']} of {least} to {most}, in {each['at'] - each['asked']:.3f} s")
    return strange
