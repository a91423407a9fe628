"""A worker of a queue with partitions does with each what it does with a queue."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from shardq import AsyncClient, AsyncWorker, BackendTimeout, Client, Nack, Reject, Worker
from shardq.ops.queue.steps import Op
from shardq.ops.results.keep import keep
from shardq.ops.settle import settle
from shardq.partitions.homes import home
from shardq.partitions.parts import numbers_of
from shardq.tasks import Tasks
from shardq.worker import jobs as jobs_of_worker
from shardq.worker.outcome import Outcome
from shardq.worker.state import WorkerJob
from tests.servers import Cluster, Server
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(20)]
HOMES = {home(tenant, PARTITIONS): tenant for tenant in TENANTS}
SETTINGS: dict[str, Any] = {"partitions": PARTITIONS, "streams": 8, "streams_per_shard": 2, "result_ttl": 60}


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_each_message_is_worked_on_once_and_its_result_is_kept(
    server: Server, queue_name: str, concurrency: int
) -> None:
    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        ids = jobs.write_many([(number, TENANTS[number % 20]) for number in range(100)])
        seen: list[Any] = []

        def handle(delivery: Any) -> Any:
            seen.append((delivery.message_id, delivery.queue is jobs))
            return delivery.payload

        worker = Worker(jobs, handle, concurrency=concurrency, until="empty", signals=False)
        worker.run()
        assert Counter(seen) == Counter((each, True) for each in ids)
        assert worker.tally["ack"] == 100
        assert [jobs.result(each) for each in ids] == [*range(100)]
        assert (jobs.len(), jobs.stats().acked) == (0, 100)


def test_async_functions_have_the_same_deliveries(server: Server, queue_name: str) -> None:
    """A Worker runs them in a loop of its own. What a function settles itself is settled in its partition."""
    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        ids = jobs.write_many([(number, TENANTS[number % 20]) for number in range(40)])
        seen: list[Any] = []

        async def handle(delivery: Any) -> Any:
            seen.append((delivery.message_id, delivery.queue.name))
            await delivery.extend(30)
            if delivery.payload % 2:
                await delivery.ack(result="own")
            return "its"

        Worker(jobs, handle, concurrency=8, until="empty", signals=False).run()
        assert Counter(seen) == Counter((each, queue_name) for each in ids)
        assert [jobs.result(each) for each in ids] == ["its", "own"] * 20
        assert jobs.len() == 0


async def test_an_async_worker_reads_all_partitions(server: Server, queue_name: str) -> None:
    async with AsyncClient.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        ids = await jobs.write_many([(number, TENANTS[number % 20]) for number in range(40)])
        seen: list[str] = []

        async def handle(delivery: Any) -> None:
            seen.append(delivery.message_id)

        await AsyncWorker(jobs, handle, concurrency=8, until="empty", signals=False).run()
        assert Counter(seen) == Counter(ids)
        assert await jobs.len() == 0


def test_what_fails_comes_again_and_what_is_rejected_is_dead(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        jobs.write_many([(word, tenant) for tenant in HOMES.values() for word in ("nack", "reject", "raise")])
        seen: Counter[Any] = Counter()

        def handle(delivery: Any) -> None:
            seen[delivery.payload] += 1
            if delivery.count > 1:
                return
            if delivery.payload == "nack":
                raise Nack(delay=0.0)
            if delivery.payload == "reject":
                raise Reject("bad")
            raise ValueError("no")

        Worker(jobs, handle, concurrency=4, until="empty", backoff=lambda *_: 0.0, signals=False).run()
        assert seen == {"nack": 2 * PARTITIONS, "reject": PARTITIONS, "raise": 2 * PARTITIONS}
        assert {(each.reason, home(each.shard_key, PARTITIONS)) for each in jobs.dead()} == {
            ("bad", number) for number in range(PARTITIONS)
        }


def test_leases_of_all_partitions_are_extended_and_cancels_are_seen(server: Server, queue_name: str) -> None:
    """Handlers of a message of each partition run for longer than their leases last; then one is cancelled."""
    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, visibility_timeout=1.0, **SETTINGS)
        ids = dict(zip(HOMES, jobs.write_many([*HOMES.items()]), strict=True))
        held: dict[str, Any] = {}
        released = threading.Event()

        def handle(delivery: Any) -> None:
            first = delivery.deadline
            held[delivery.message_id] = (delivery, first)
            released.wait(30)

        worker = Worker(jobs, handle, concurrency=4, signals=False)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            eventually(lambda: len(held) == PARTITIONS)
            eventually(lambda: all(each.deadline > first + 1.0 for each, first in held.values()))
            assert not any(each.lost for each, _ in held.values())
            cancelled = ids[2]
            assert jobs.cancel(cancelled) == "in flight"
            eventually(lambda: held[cancelled][0].lost)
            assert [each for each, (delivery, _) in held.items() if delivery.lost] == [cancelled]
            eventually(lambda: [each.state for each in jobs.workers()] == ["working"])
        finally:
            released.set()
            worker.stop()
            thread.join(30)
        assert jobs.len() == jobs.stats().in_flight == 1  # the one that was cancelled, until its lease ends


def test_a_worker_is_woken_by_a_write_to_any_partition(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        jobs.declare()
        seen: list[int] = []
        worker = Worker(jobs, lambda delivery: seen.append(delivery.payload), concurrency=2, signals=False)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            for number, tenant in HOMES.items():
                jobs.write(number, shard_key=tenant)
                eventually(partial(seen.__contains__, number))
        finally:
            worker.stop()
            thread.join(30)
        assert not thread.is_alive()


async def test_an_async_worker_that_is_stopped_gives_back_what_it_holds(server: Server, queue_name: str) -> None:
    async with AsyncClient.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        await jobs.write_many([*HOMES.items()])
        began: list[int] = []

        async def handle(delivery: Any) -> None:
            began.append(delivery.payload)
            await asyncio.sleep(60)

        worker = AsyncWorker(jobs, handle, concurrency=4, grace=0.0, signals=False)
        task = asyncio.create_task(worker.run())
        await asyncio.to_thread(eventually, lambda: len(began) == PARTITIONS)
        worker.stop()
        await task
        stats = await jobs.stats()
        assert (stats.in_flight, stats.backlog + stats.delayed) == (0, PARTITIONS)


def test_a_worker_that_was_told_nothing_reads_all_partitions(server: Server, queue_name: str) -> None:
    """Also where the queue is made after the worker has begun. Leases are extended in their partitions."""
    with Client.from_url(server.url) as client, Client.from_url(server.url) as other:
        seen: list[Any] = []

        async def handle(delivery: Any) -> None:
            first = delivery.deadline
            while delivery.deadline <= first + 0.5:  # noqa: ASYNC110 (the keeper extends it)
                await asyncio.sleep(0.01)
            seen.append(delivery.message_id)

        worker = Worker(client.queue(queue_name), handle, concurrency=8, signals=False)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            jobs = other.queue(queue_name, visibility_timeout=1.0, **SETTINGS)
            ids = jobs.write_many([*HOMES.items(), *HOMES.items()])
            eventually(lambda: len(seen) == len(ids))
            eventually(lambda: jobs.len() == 0)
        finally:
            worker.stop()
            thread.join(30)
        assert Counter(seen) == Counter(ids)


def test_a_worker_reads_partitions_on_different_nodes(cluster: Cluster, queue_name: str) -> None:
    """With functions of both kinds, whose leases are extended on each node."""
    with Client.from_url(cluster.url) as client:
        jobs = client.queue(queue_name, visibility_timeout=1.0, **SETTINGS)
        ids = jobs.write_many([(number, TENANTS[number % 20]) for number in range(40)])
        seen: list[str] = []

        async def handle(delivery: Any) -> int:
            first = delivery.deadline
            while delivery.payload < 8 and delivery.deadline <= first + 0.5:  # noqa: ASYNC110 (the keeper extends it)
                await asyncio.sleep(0.01)
            seen.append(delivery.message_id)
            return int(delivery.payload)

        Worker(jobs, handle, concurrency=8, until="empty", signals=False).run()
        assert Counter(seen) == Counter(ids)
        assert [jobs.result(each) for each in ids] == [*range(40)]


def test_minutes_are_of_all_partitions(server: Server, queue_name: str) -> None:
    minutes_of_all(server.url, queue_name)


def test_minutes_are_of_all_partitions_on_different_nodes(cluster: Cluster, queue_name: str) -> None:
    minutes_of_all(cluster.url, queue_name)


def minutes_of_all(url: str, queue_name: str) -> None:
    """A worker tells what lies in all partitions, and of itself once."""
    with Client.from_url(url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        jobs.write_many([*HOMES.items()] * 3)
        jobs.pause()  # so nothing moves until the numbers are told
        worker = Worker(jobs, lambda _: None, concurrency=2, signals=False)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            eventually(jobs.history, what="a minute is told")
            minute, outlook = jobs.history()[-1], jobs.outlook()
            assert (minute.backlog, minute.runnable, minute.workers, minute.slots) == (3 * PARTITIONS, 0, 1, 2)
            assert (outlook.workers, outlook.slots, outlook.is_read) == (1, 2, True)
            jobs.resume()
            eventually(lambda: jobs.len() == 0)
        finally:
            worker.stop()
            thread.join(30)


def test_a_worker_writes_the_calls_of_schedules_to_the_homes_of_their_shard_keys(
    server: Server, queue_name: str
) -> None:
    """Of those that the program declares, by a worker that makes the queue, and of those that users stored."""
    tasks = Tasks(queue_name, **SETTINGS, max_schedules=9)
    for number, tenant in HOMES.items():

        @tasks.every(seconds=1, shard_key=tenant, name=f"s{number}")
        @tasks.task(name=f"t{number}")
        def tick() -> None: ...

    with Client.from_url(server.url) as client:
        jobs = client.queue(tasks)
        worker = Worker(jobs, tasks, concurrency=2, signals=False)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            eventually(lambda: jobs.stats().acked >= PARTITIONS, what="calls are written and done")
            eventually(lambda: all(jobs.tenant(tenant).delayed for tenant in HOMES.values()))
            assert jobs.settings().partitions == PARTITIONS
        finally:
            worker.stop()
            thread.join(30)


def test_a_partition_that_does_not_answer_costs_the_leases_of_no_other(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, extended = settle.extend, Counter[int]()

    def extend_but_one(state: Any, *given: Any) -> Any:
        if state.number == 1:
            raise BackendTimeout("its node is away")
        extended[state.number] += 1
        return (yield from extend(state, *given))

    monkeypatch.setattr(settle, "extend", extend_but_one)
    lost, release = set[int](), threading.Event()

    def handle(delivery: Any) -> None:
        delivery.on_lost(lambda gone: lost.add(gone.partition))
        assert release.wait(30)

    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        jobs.write_many([(tenant, tenant) for tenant in HOMES.values()])
        worker = Worker(jobs, handle, concurrency=8, until="empty", signals=False, visibility_timeout=1)
        running = threading.Thread(target=worker.run, daemon=True)
        running.start()
        eventually(lambda: 1 in lost)
        before = Counter(extended)
        eventually(lambda: all(extended[number] > before[number] for number in (0, 2)))
        release.set()
        running.join(30)
        assert lost == {1}
        assert jobs.len() == 0


def test_a_partition_that_keeps_no_results_has_the_others_acked_all_the_same(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one whose node is away: the jobs of the others are not worked on again and again, and reads go on."""
    recovers = threading.Event()

    def keep_but_in_one(state: Any, *given: Any) -> Any:
        if state.number == 1 and not recovers.is_set():
            raise BackendTimeout("its node is away")
        return (yield from keep(state, *given))

    monkeypatch.setattr(jobs_of_worker, "keep", keep_but_in_one)
    seen: list[tuple[int, int]] = []

    def handle(delivery: Any) -> str:
        seen.append((delivery.partition, delivery.count))
        return "done"

    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, **SETTINGS)
        jobs.write_many([(n, tenant) for tenant in HOMES.values() for n in range(3)])
        worker = Worker(jobs, handle, concurrency=16, until="empty", signals=False)
        running = threading.Thread(target=worker.run, daemon=True)
        running.start()
        eventually(lambda: jobs.stats().acked == 6)
        recovers.set()
        running.join(30)
        assert Counter(seen) == {(number, 1): 3 for number in range(PARTITIONS)}
        assert (jobs.len(), jobs.stats().acked) == (0, 9)
    assert "cannot be read" not in caplog.text


def may_go_along(jobs: Any, held: list[WorkerJob]) -> Op[Sequence[WorkerJob]]:
    """Those that the next read acks."""
    op = jobs_of_worker.keeping(jobs, held)
    assert op is not None
    return op


def test_acks_of_a_partition_that_is_away_are_in_no_read_of_the_others(server: Server, queue_name: str) -> None:
    """They go out by themselves: a read that acks waits for the answer to that."""
    with Client.from_url(server.url) as client:
        jobs: Any = client.queue(queue_name, **SETTINGS)
        jobs.write_many([(tenant, tenant) for tenant in HOMES.values()])
        held = [WorkerJob(each) for each in jobs.read_many(9)]
        for each in held:
            each.outcome = Outcome("ack")
        assert jobs_of_worker.keeping(jobs, held) is None
        jobs.state.parts.away.heard(1, BackendTimeout("its node is away"))
        taken = client.run(may_go_along(jobs, held))
        assert sorted(numbers_of([each.delivery for each in taken])) == [0, 2]
        for number in (0, 2):
            jobs.state.parts.away.heard(number, BackendTimeout("its node is away"))
        assert client.run(may_go_along(jobs, held)) == held
