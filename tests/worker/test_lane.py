"""One engine for both workers: threads do what is next, and hand what is async to an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shardq import AsyncDelivery, Client, Delivery, Queue
from shardq.backoff import Constant
from shardq.tasks import Tasks
from shardq.worker.lane import Lane
from tests.clients import ClientKind
from tests.waiting import eventually
from tests.worker.conftest import LEASE, Begin
from tests.worker.forward import Forward
from tests.worker.running import FunctionKind

LIMIT = 2 * LEASE + 5
"""Longer than `outlast` takes."""


def test_a_thread_is_known_to_be_on_its_way_before_it_begins(
    begin: Begin, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes that back when it has begun. If that came first, nobody would be woken any more."""
    said: list[bool] = []
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        lane = getattr(getattr(thread, "_target", None), "__self__", None)
        if isinstance(lane, Lane) and thread.name != "shardq-worker-stop":
            said.append(lane._waking)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    gate = threading.Barrier(4)
    jobs.write_many([(number, f"t{number}") for number in range(4)])
    begin(lambda _: gate.wait(60), functions="plain", concurrency=4)
    eventually(lambda: jobs.stats().acked == 4)
    assert len(said) >= 4
    assert all(said)


class Blocking:
    """Tasks of which an async one blocks its event loop until `release`."""

    def __init__(self) -> None:
        self.tasks: Tasks[None] = Tasks("jobs", visibility_timeout=LEASE, max_deliveries=3)
        self.blocked, self.release = threading.Event(), threading.Event()
        self.ran: list[str] = []

        @self.tasks.task(name="blocks", time_limit=LIMIT, retries=0)
        async def blocks() -> None:
            self.blocked.set()
            self.release.wait(90)

        @self.tasks.task(name="plain")
        def plain() -> None:
            self.ran.append("plain")

        @self.tasks.task(name="async")
        async def coroutine() -> None:
            self.ran.append("async")


def test_what_blocks_the_event_loop_stops_only_async_tasks(
    begin: Begin, client: Client, clock: Forward, outlast: Callable[[], None]
) -> None:
    blocking = Blocking()
    jobs = client.queue(blocking.tasks)
    jobs.write(["blocks", {}], shard_key="t")
    begun = begin(blocking.tasks, concurrency=8)
    try:
        assert blocking.blocked.wait(60)
        jobs.write_many([([name, {}], name) for name in ("async", *["plain"] * 20)])
        eventually(lambda: jobs.stats().acked == 20)
        assert blocking.ran == ["plain"] * 20
        outlast()
        assert jobs.stats().in_flight == 2, "their leases are kept"
        clock.by += 10
        eventually(lambda: jobs.stats().dead == 1, what="the time limit is decided")
    finally:
        blocking.release.set()
    eventually(lambda: jobs.stats().acked == 21)
    begun.stop()
    assert begun.failure is None
    assert blocking.ran[-1] == "async"


def test_a_worker_whose_event_loop_is_blocked_ends_with_its_grace(
    begin: Begin, client: Client, client_kind: ClientKind
) -> None:
    """An AsyncWorker gives the message back; its `run` is in that loop."""
    blocking = Blocking()
    jobs = client.queue(blocking.tasks)
    jobs.write(["blocks", {}], shard_key="t")
    begun = begin(blocking.tasks, grace=0.1)
    assert blocking.blocked.wait(60)
    begun.stop(wait=client_kind == "sync")
    try:
        eventually(lambda: jobs.stats().in_flight == 0, what="it is given back")
        assert begun.worker
        assert begun.worker.hangs == 1
    finally:
        blocking.release.set()
    begun.join()
    assert (jobs.stats().backlog, begun.failure) == (1, None)


def test_a_function_has_a_delivery_of_its_kind(begin: Begin, jobs: Queue, functions: FunctionKind) -> None:
    seen: list[tuple[Any, str]] = []

    def plain(delivery: Delivery) -> None:
        delivery.extend(60)
        seen.append((delivery, delivery.payload))
        if delivery.payload == "m":
            delivery.queue.write("more", shard_key="t")

    async def coroutine(delivery: AsyncDelivery) -> None:
        await delivery.extend(60)
        seen.append((delivery, delivery.payload))
        if delivery.payload == "m":
            await delivery.queue.write("more", shard_key="t")

    jobs.write("m", shard_key="t")
    begin(coroutine if functions == "async" else plain, functions=functions)
    eventually(lambda: jobs.stats().acked == 2)
    assert [payload for _, payload in seen] == ["m", "more"]
    assert all(isinstance(each, AsyncDelivery if functions == "async" else Delivery) for each, _ in seen)
    assert str(seen[0][0]).startswith("AsyncDelivery(" if functions == "async" else "Delivery(")


def test_what_an_async_function_settles_is_settled(begin: Begin, jobs: Queue) -> None:
    async def handle(delivery: AsyncDelivery) -> None:
        await delivery.reject("poison")

    jobs.write("m", shard_key="t")
    begun = begin(handle)
    eventually(lambda: jobs.stats().dead == 1)
    begun.stop()
    assert (jobs.stats().acked, [letter.reason for letter in jobs.dead()]) == (0, ["poison"])


def test_an_async_function_is_told_in_its_loop_that_its_lease_is_lost(
    begin: Begin, jobs: Queue, clock: Forward
) -> None:
    inside, told = threading.Event(), list[tuple[int, int]]()

    async def handle(delivery: AsyncDelivery) -> None:
        loop = threading.get_ident()
        delivery.on_lost(lambda each: told.append((threading.get_ident(), loop)) if each.lost else None)
        inside.set()
        try:
            await asyncio.sleep(90)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # the callback's turn
            raise

    jobs.write("m", shard_key="t")
    begin(handle)
    assert inside.wait(60)
    clock.by += LEASE + 1
    eventually(lambda: told)
    assert told[0][0] == told[0][1]


def test_dead_letters_are_told_to_functions_of_both_kinds(begin: Begin, jobs: Queue, functions: FunctionKind) -> None:
    told: list[tuple[type, str]] = []

    def on_dead(delivery: Delivery, reason: str) -> None:
        told.append((Delivery if isinstance(delivery, Delivery) else AsyncDelivery, reason))

    async def on_dead_async(delivery: AsyncDelivery, reason: str) -> None:
        await asyncio.sleep(0)
        told.append((AsyncDelivery if isinstance(delivery, AsyncDelivery) else Delivery, reason))

    def handle(_: Any) -> None:
        raise ValueError("no")

    jobs.write("m", shard_key="t")
    begin(handle, on_dead=on_dead_async if functions == "async" else on_dead, backoff=Constant(0))
    eventually(lambda: told)
    assert told == [(AsyncDelivery if functions == "async" else Delivery, "ValueError: no")]


@pytest.mark.parametrize("client_kind", ["sync"])  # the loop of an AsyncWorker is the program's own
def test_a_task_that_a_handler_leaves_behind_does_not_end_the_loop(begin: Begin, jobs: Queue) -> None:
    left: list[asyncio.Task[None]] = []

    async def leaves() -> None:
        raise SystemExit(3)

    async def handle(delivery: AsyncDelivery) -> None:
        if delivery.payload == "m":
            left.append(asyncio.create_task(leaves()))

    jobs.write("m", shard_key="t")
    begun = begin(handle)
    eventually(lambda: jobs.stats().acked == 1)
    eventually(left[0].done)
    jobs.write("more", shard_key="t")
    eventually(lambda: jobs.stats().acked == 2)
    begun.stop()
    assert (begun.failure, type(left[0].exception())) == (None, SystemExit)
