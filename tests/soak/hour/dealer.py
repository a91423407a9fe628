"""Deals faults, one at a time, in an order that the seed gives, and measures how long each affected queue needs then.

Each fault is in the deck once; when all are dealt, it is shuffled again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from shardq import Client, QueueFull, Written
from tests.soak.hour.notes import Notes
from tests.soak.hour.world import SURE, World
from tests.soak.load import Unanswered

RECOVERY: Final = 120.0
"""Seconds after which what has not recovered never will."""

PROBE: Final = 2.0
"""Seconds that a probe waits for its answer."""

PAUSE: Final = 0.05
"""Seconds between two probes."""


class Strike:
    """One fault. It says that it is over by `over`; from then on what it affected is probed, until all works again."""

    def __init__(self, name: str, probes: Probes, notes: Notes) -> None:
        self.name, self.target, self.at, self.until = name, "", time.monotonic(), 0.0
        self._probes, self._notes = probes, notes
        self._threads: list[threading.Thread] = []
        self._took: dict[str, float] = {}

    def over(self, target: str, queues: Iterable[str] = (), works: Callable[[], object] | None = None) -> None:
        """Note the fault, and begin to probe the *queues*, or whether something *works*."""
        self.target, self.until = target, time.monotonic()
        self._notes.add("fault", name=self.name, target=target, at=self.at, until=self.until)
        probes: dict[str, Callable[[], object]] = {each: self._probes.probe(each) for each in queues}
        if works is not None:
            probes[target] = works
        self._threads = [threading.Thread(target=self._recover, args=each) for each in probes.items()]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until all is as before. What is not is missing in the history, and said by whoever judges that."""
        for each in self._threads:
            each.join()
        if self._threads and len(self._took) == len(self._threads):
            took = max(self._took.values())
            self._notes.add(
                "recovered", name=self.name, target=self.target, at=self.until + took, took=took, each=self._took
            )

    def _recover(self, what: str, probe: Callable[[], object]) -> None:
        while time.monotonic() - self.until < RECOVERY:
            if probe():
                self._took[what] = time.monotonic() - self.until
                return
            time.sleep(PAUSE)


class Probes:
    """Writes a message to a queue, with a client of its own for each place. They are in the history, as all others."""

    def __init__(self, world: World, notes: Mapping[str, Notes]) -> None:
        self._world, self._notes, self._number = world, notes, 0
        self._clients: dict[tuple[str, str, float], Client] = {}
        self._lock = threading.Lock()

    def client(self, queue: str, timeout: float = PROBE) -> Client:
        """The client for a queue."""
        place = (self._world.site_of(queue).url, level_of(queue), timeout)
        with self._lock:
            if place not in self._clients:
                self._clients[place] = Client.from_url(place[0], timeout=timeout, durability=place[1])
            return self._clients[place]

    def patient(self, queue: str) -> Client:
        """One that waits as long as anything may take."""
        return self.client(queue, RECOVERY)

    def probe(self, name: str) -> Callable[[], bool]:
        """Whether a write to a queue is answered."""

        def written() -> bool:
            notes = self._notes[name]
            with self._lock:
                self._number += 1
                value = f"probe.{self._number}"
            notes.add("try", values=[value])
            try:
                found: Written = notes.ask(
                    "write", lambda: self.client(name).queue(name, create=False).write(value, shard_key="probe"), PROBE
                )
            except (Unanswered, QueueFull):
                return False
            notes.add("wrote", values=[value], ids=[str(found)], at=time.monotonic())
            return True

        return written

    def close(self) -> None:
        """Close all clients."""
        for each in self._clients.values():
            each.close()


def level_of(queue: str) -> str:
    """The level of durability with which a queue is written to."""
    return SURE if queue == "sure" else "process"


Fault = Callable[[Strike], None]


class Dealer:
    """Deals the faults of a deck."""

    def __init__(self, faults: Mapping[str, Fault], probes: Probes, notes: Notes, rng: random.Random) -> None:
        self._faults, self._probes, self._notes, self._rng = faults, probes, notes, rng
        self._deck: list[str] = []

    def deal(self) -> str:
        """One fault, from its beginning until all that it affected works again. Return its name."""
        if not self._deck:
            self._deck = self._rng.sample(sorted(self._faults), len(self._faults))
        name = self._deck.pop()
        strike = Strike(name, self._probes, self._notes)
        try:
            self._faults[name](strike)
        finally:
            strike.wait()
        return name
