"""How late is what time brings, while those who watch for it are killed, stopped, or leave? By the server's clock.

30 messages, and 1,000 in `make soak`.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from shardq import Client, Queue
from shardq.model import Event
from tests.conftest import Record
from tests.selection import SOAK
from tests.servers import Server, ServerKind
from tests.soak.processes import drained
from tests.waiting import eventually

MESSAGES = 1_000 if SOAK else 30
TOGETHER = 3
"""Messages of one round: readers are struck once in each, and others come when it is over."""
LEASE = 1.0
LATE = 1.0
"""Seconds: a reader that nobody tells of a moment looks up to 5 s after it."""


class Readers:
    """Two to five processes that read. All are gone when the context is left."""

    def __init__(self, server: Server, queue: str, rng: random.Random) -> None:
        self._server, self._queue, self._rng = server, queue, rng
        self._alive: list[subprocess.Popen[bytes]] = []
        self._stopped: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Readers:
        self.refill()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._alive, *self._stopped):
            each.kill()
            each.wait()

    def strike(self) -> None:
        """Kill or stop all but one, mostly."""
        self._rng.shuffle(self._alive)
        spared = self._rng.choice((1, 1, 2))
        struck, self._alive = self._alive[spared:], self._alive[:spared]
        for each in struck:
            if self._rng.random() < 0.5:
                each.kill()
                each.wait()
            else:
                each.send_signal(signal.SIGSTOP)
                self._stopped.append(each)

    def refill(self) -> None:
        """Let those go on that were stopped, and others come; all are blocked when it returns."""
        for each in self._stopped:
            each.send_signal(signal.SIGCONT)
        self._alive, self._stopped = self._alive + self._stopped, []
        for _ in range(self._rng.randint(2, 5) - len(self._alive)):
            self._start()
        eventually(lambda: self._server.info("clients")["blocked_clients"] == len(self._alive), what="blocked readers")

    def _start(self) -> None:
        words = (self._server.url, self._queue, str(LEASE), str(self._rng.random()))
        self._alive.append(subprocess.Popen([sys.executable, "-m", "tests.soak.blocked", *words]))


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(3_600 if SOAK else 240)
def test_what_comes_due_is_not_late_whoever_dies(
    kind: ServerKind | None, queue_name: str, rng: random.Random, record_property: Record
) -> None:
    """Writes with delays, and leases of those that were killed or stopped."""
    with Server(kind) as server, Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=4, max_deliveries=1000, journal=100_000)
        queue.declare()
        with Readers(server, queue_name, rng) as readers:
            for _ in range(-(-MESSAGES // TOGETHER)):
                _round(queue, readers, rng)
        late = sorted(_lateness(_deliveries(queue)))
    p99, worst = late[len(late) * 99 // 100], late[-1]
    record_property("note", f"lateness: {len(late)} deliveries, p99 {p99 * 1000:.0f} ms, worst {worst * 1000:.0f} ms")
    assert len(late) >= MESSAGES
    if SOAK:
        assert (p99 <= 0.25, worst <= 0.5) == (True, True), (p99, worst)
    else:
        assert sum(each > LATE for each in late) <= len(late) / 20, late


def _round(queue: Queue, readers: Readers, rng: random.Random) -> None:
    """Write what comes due at random, and strike the readers before that."""
    for number in range(TOGETHER):
        queue.write(number, shard_key=f"t{number}", delay=rng.uniform(0.4, 1.5))
    time.sleep(rng.uniform(0, 0.3))
    readers.strike()
    eventually(lambda: drained(queue), 60, every=0.1, what="drained")
    readers.refill()


def _deliveries(queue: Queue) -> Iterator[Event]:
    """All of them, in order."""
    position = 0
    while events := (page := queue.journal(1_000, after=position)).events:
        yield from (event for event in events if event.kind == "delivered")
        position = page.position


def _lateness(deliveries: Iterator[Event]) -> Iterator[float]:
    """Seconds by which each delivery came after it could: after the message was due, or its last lease had ended."""
    since: dict[str, float] = {}
    for event in deliveries:
        possible = since.get(event.message_id, event.due)
        assert possible is not None
        yield event.time - possible
        since[event.message_id] = event.time + LEASE
