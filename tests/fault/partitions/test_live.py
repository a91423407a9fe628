"""A queue is resized again and again under load: nothing is lost, doubled or stored again; sums stay in bounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from threading import Event, Lock, Thread
from typing import Any

import pytest

from shardq import Client, Queue
from shardq.partitions import asking, parts, resize, tidy
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")
SIZES = [4, 8, 3, 1, 6]
TENANTS = [f"tenant-{number}" for number in range(40)]
SOON = 60.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is old after a tenth of the time."""
    for room in (asking, parts):
        monkeypatch.setattr(room, "MAX_AGE", 0.5)
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 1.0)


class Load:
    """Writers and readers of one queue, with clients of their own, and what they have done so far."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name, self._numbers, self._lock = url, name, count(), Lock()
        self.begun = self.written = self.acking = self.acked = 0
        self.read: Counter[str] = Counter()
        self.is_over, self.failed = Event(), list[Exception]()
        self._threads: list[Thread] = []

    def start(self, work: Callable[[Queue], None]) -> None:
        def run() -> None:
            try:
                with Client.from_url(self._url) as client:
                    work(client.queue(self._name))
            except Exception as error:  # noqa: BLE001 (the test raises it)
                self.failed.append(error)

        self._threads.append(Thread(target=run))
        self._threads[-1].start()

    def end(self) -> None:
        self.is_over.set()
        for each in self._threads:
            each.join(SOON)
        assert self.failed == []

    def write(self, queue: Queue) -> None:
        """Write one by one and in batches; each message once."""
        while not self.is_over.is_set():
            some = [next(self._numbers) for _ in range(3)]
            with self._lock:
                self.begun += len(some)
            tenants = [TENANTS[each % len(TENANTS)] for each in some]
            queue.write(some[0], shard_key=tenants[0])
            queue.write_many(list(zip(some[1:], tenants[1:], strict=True)))
            with self._lock:
                self.written += len(some)

    def consume(self, queue: Queue) -> None:
        """Read and ack until all that was written is acked."""
        while not (self.is_over.is_set() and self.acked >= self.written):
            found = queue.read_many(5, block=0.3)
            with self._lock:
                self.read.update([str(each.payload) for each in found])
                self.acking += len(found)
            assert queue.ack_many(found) == []
            with self._lock:
                self.acked += len(found)

    def measure(self, queue: Queue) -> None:
        """What was there all the time of a call counts once, and what never was does not."""
        while not self.is_over.is_set():
            with self._lock:
                written, acked = self.written, self.acked
            told = queue.len()
            with self._lock:
                begun, acking = self.begun, self.acking
            assert written - acking <= told <= begun - acked
            time.sleep(0.005)


@pytest.fixture
def load(server: Server, queue_name: str) -> Iterator[Load]:
    with Client.from_url(server.url) as client:
        client.queue(queue_name, streams=4, streams_per_shard=2).declare()
    load = Load(server.url, queue_name)
    yield load
    load.is_over.set()


def resized(server: Server, name: str, load: Load) -> None:
    for wanted in SIZES:
        with Client.from_url(server.url) as client:
            client.queue(name).resize(partitions=wanted)
        written = load.written
        eventually(lambda written=written: load.written > written + 100 or load.failed)  # type: ignore[misc]


@pytest.mark.parametrize("partitions", [1, 2])
def test_nothing_is_lost_or_doubled_and_no_sum_is_out_of_bounds(
    server: Server, queue_name: str, load: Load, partitions: int
) -> None:
    if partitions > 1:  # else the client that only looks is told nothing
        with Client.from_url(server.url) as client:
            client.queue(queue_name).resize(partitions=partitions)
        load.start(load.measure)
    for work in (load.write, load.write, load.consume, load.consume):
        load.start(work)
    eventually(lambda: load.acked > 100 or load.failed)
    resized(server, queue_name, load)
    load.end()
    assert load.begun == load.written == load.acked
    assert load.read == Counter([str(number) for number in range(load.written)])


def test_a_key_that_two_clients_write_is_stored_once(server: Server, queue_name: str, load: Load) -> None:
    """Each key is written by both, one after the other, all through the resizes, and long after it was stored."""
    ids: dict[str, str] = {}
    again: list[tuple[str, str]] = []

    def old(number: int) -> Iterator[int]:
        """New keys, and some that were written before by the other one."""
        for each in count():
            yield each
            yield max(0, each - number)

    turn, is_first = Lock(), iter((True, False))

    def both(queue: Queue) -> None:
        for number in old(7 if next(is_first) else 23):
            with turn:  # one after the other: what is written at the same moment by two maps is not promised
                write_one(queue, number)
            if load.is_over.is_set():
                return

    def write_one(queue: Queue, number: int) -> None:
        tenant = TENANTS[number % len(TENANTS)]
        for kind in ("dedup_key", "unique_key"):
            key: dict[str, Any] = {kind: f"{number}"}
            written = queue.write(number, shard_key=tenant, **key)
            if (first := ids.setdefault(f"{kind} {number}", written)) != written:
                again.append((first, written))
        load.written += 1

    load.start(both)
    load.start(both)
    resized(server, queue_name, load)
    load.end()
    assert again == []
    with Client.from_url(server.url) as client:
        assert client.queue(queue_name).len() == len(ids)


def test_drained_partitions_are_gone_while_others_work(
    server: Server, queue_name: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy, "RETENTION", 1.0)
    monkeypatch.setattr(tidy, "TIDY_INTERVAL", 0.2)
    monkeypatch.setattr(tidy, "LOOK_INTERVAL", 0.2)
    with Client.from_url(server.url) as client:
        client.queue(queue_name).configure(dedup_window=1.0)
        for work in (load.write, load.consume, load.consume):
            load.start(work)
        for wanted in (5, 2, 4, 1):
            client.queue(queue_name).resize(partitions=wanted)
            eventually(lambda wanted=wanted: load.failed or len(client.queue(queue_name).partitions()) == wanted)  # type: ignore[misc]
    load.end()
    assert load.read == Counter([str(number) for number in range(load.written)])
    assert not [key for key in server.client().keys("*") if b"#" in key]


def test_who_was_idle_while_the_queue_grew_counts_all(server: Server, queue_name: str) -> None:
    """The map that it knows is old: it is not summed by that."""
    with Client.from_url(server.url) as client, Client.from_url(server.url) as other:
        idle = other.queue(queue_name, partitions=2, streams=4, streams_per_shard=2)
        idle.declare()
        queue = client.queue(queue_name)
        queue.resize(partitions=6)
        queue.write_many([(each, each) for each in TENANTS])
        assert (idle.len(), idle.stats().backlog) == (len(TENANTS), len(TENANTS))
