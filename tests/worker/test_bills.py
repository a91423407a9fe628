"""For how long jobs ran, as the journal tells it: as their handlers' own clocks say, however many run at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from shardq import Client, Queue
from shardq.tasks import Tasks
from tests.clients import ClientKind
from tests.waiting import eventually
from tests.worker.conftest import Begin
from tests.worker.forward import Forward
from tests.worker.running import Gate, run_worker

pytestmark = pytest.mark.runs_in("test-all")

TENANTS = 5
CLOSE = 0.01
"""By what part the two may differ."""
JOB = 0.5
"""Seconds of the longest job, far longer than what a handler's clock cannot see."""


class Handlers:
    """Jobs that take known times, each measured by its handler's own monotonic clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ran: defaultdict[str, float] = defaultdict(float)

    def plain(self, delivery: Any) -> None:
        began = time.monotonic()
        time.sleep(delivery.payload)
        with self._lock:
            self.ran[delivery.shard_key] += time.monotonic() - began

    async def asynchronous(self, delivery: Any) -> None:
        began = time.monotonic()
        await asyncio.sleep(delivery.payload)
        self.ran[delivery.shard_key] += time.monotonic() - began


def told(client: Client, name: str) -> dict[str, float]:
    """For how many seconds the jobs of each tenant ran, as the journal tells it."""
    found: defaultdict[str, float] = defaultdict(float)
    for event in client.queue(name).journal(10_000).events:
        if event.kind == "acked":
            assert event.ran_ms is not None
            found[str(event.shard_key)] += event.ran_ms / 1000
    return found


@pytest.mark.parametrize("concurrency", [4, 32])
def test_jobs_ran_as_long_as_their_handlers_say(
    client_kind: ClientKind, url: str, client: Client, concurrency: int
) -> None:
    queue = client.queue("billed", create=True, streams=8, journal=100_000)
    queue.write_many([(JOB * (1 + number % 3) / 3, f"t{number % TENANTS}") for number in range(4 * concurrency)])
    handlers = Handlers()
    handle = handlers.plain if client_kind == "sync" else handlers.asynchronous
    run_worker(client_kind, url, {"billed": 1}, handle, until="empty", concurrency=concurrency)
    seen = told(client, "billed")
    assert seen == pytest.approx(handlers.ran, rel=CLOSE)
    assert len(seen) == TENANTS


def test_a_batch_ran_once_however_many_share_it(client_kind: ClientKind, url: str, client: Client) -> None:
    """Its time is that of its call, with the way to the thread and back."""
    tasks: Tasks[None] = Tasks("billed", journal=1000)
    ran: list[float] = []

    def index(documents: list[int]) -> None:
        began = time.monotonic()
        time.sleep(JOB)
        ran.append(time.monotonic() - began)

    task: Any = tasks.batch(name="index", size=4, wait=30)(index)
    client.queue(tasks).write_many([(task.call(number), f"t{number % 2}") for number in range(8)])
    run_worker(client_kind, url, {tasks: 1}, tasks, until="empty", concurrency=8)
    assert len(ran) == 2
    assert sum(ran) <= sum(told(client, "billed").values()) < 2 * sum(ran)  # and not eight jobs of half a second


@pytest.mark.parametrize("others", [0, 20])
def test_a_job_whose_lease_is_extended_tells_all_that_it_ran(
    begin: Begin, jobs: Queue, client: Client, clock: Forward, outlast: Callable[[], None], others: int
) -> None:
    """With others that wait it is charged in parts; without any it is not charged at all."""
    jobs.configure(journal=1000)
    gate = Gate()
    jobs.write_many([(0, "mine"), *((0, "other") for _ in range(others))])
    begun = begin(gate, concurrency=1)
    eventually(lambda: len(gate.inside) == 1)
    key, before = str(gate.inside[0].shard_key), clock.by
    outlast()
    gate.open.set()
    eventually(lambda: len(gate.done) == 1 + others and jobs.stats().in_flight == 0)
    begun.stop()
    billed = [each for each in jobs.journal(1000).events if each.message_id == gate.inside[0].message_id]
    assert billed[-1].kind == "acked"
    assert billed[-1].shard_key == key
    ran = (billed[-1].ran_ms or 0) / 1000
    assert clock.by - before <= ran
    charged = [each.charged_ms for each in billed if each.kind == "charged"]
    assert len(charged) >= 5 if others else charged == []
    assert all(charged)
