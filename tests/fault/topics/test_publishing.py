"""Publishers to several queues share calls with other writers: each keeps its own deadline, results and errors."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardq import (
    AsyncClient,
    BackendTimeout,
    Client,
    ClosedError,
    DurabilityUnknown,
    OutcomeUnknown,
    PartlyPublished,
    Queue,
    QueueFull,
    ShardqError,
    Written,
)
from shardq.drivers.sharing import MAX_CALLS_UNDER_WAY
from shardq.ops.queue.state import QueueState
from tests.fault.client.test_forks import bounded
from tests.fault.client.test_processes import child
from tests.fault.conftest import Open
from tests.fault.sharing.test_coalescing import CONNECTING, ended, rising_runs, waiting
from tests.proxy import Proxy
from tests.servers import Server, ServerKind
from tests.waiting import eventually

THREADS = 12
QUEUES = 3
Calls = list[Callable[[], Any]]


@pytest.fixture
def queues(proxy: Proxy, open_client: Open, queue_name: str) -> list[Queue]:
    """Three queues that the topic "news" goes to, which their client knows already."""
    client = open_client(proxy.url)
    return bound(client, queue_name)


def bound(client: Client, name: str, **settings: Any) -> list[Queue]:
    queues = [client.queue(f"{name}.{number}", streams=2, streams_per_shard=1, **settings) for number in range(QUEUES)]
    for queue in queues:
        client.bind("news", queue, router=name)
        queue.write("-", shard_key="-")
        queue.read().ack()
    return queues


def published(queues: list[Queue], payload: Any, **settings: Any) -> Callable[[], Any]:
    name = queues[0].name.rpartition(".")[0]
    return lambda: queues[0].client.publish("news", payload, shard_key="tenant", router=name, **settings)


def fresh(queues: list[Queue]) -> None:
    """Let a publish ask for no bindings while the link is closed."""
    for router in real(queues[0].client)._routers.all():
        router.max_age = 600.0
        router.checked = router.clock.monotonic()


def real(client: Any) -> Any:
    return getattr(client, "_twin", client)


def meet(queues: list[Queue], pool: ThreadPoolExecutor, calls: Calls) -> list[Future[Any]]:
    """Start *calls*, one after the other has come to the last of the queues."""
    futures = []
    before = waiting(queues[-1])
    for count, call in enumerate(calls, before + 1):
        futures.append(pool.submit(ended, call))
        eventually(lambda count=count: waiting(queues[-1]) >= count, what="the caller has come")  # type: ignore[misc]
    return futures


def nothing_is_left(queues: list[Queue]) -> None:
    """No coalescer is entered, nobody waits there, and all sequences are free."""
    eventually(lambda: not any(waiting(queue) for queue in queues), what="all have left")
    for queue in queues:
        assert all_free(queue.state)


def all_free(state: QueueState) -> bool:
    """Whether no sequence is taken. It can be asked once, since it takes the number of the next one."""
    return len(state.sequences._idle) == next(state.sequences._numbers)


def test_publishers_share_calls_with_each_other_and_with_writers(proxy: Proxy, queues: list[Queue]) -> None:
    fresh(queues)
    sent = proxy.copies(b"FCALL")
    calls = [published(queues, n) for n in range(THREADS - 1)]
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queues, pool, [*calls, lambda: queues[-1].write(THREADS - 1, shard_key="tenant")])
        proxy.heal()
        results = [future.result(60) for future in futures]
    assert len(sent) <= QUEUES * (
        MAX_CALLS_UNDER_WAY + 2
    )  # the last two are for those who waited, and may overtake each other
    assert all(len(result) == QUEUES for result in results[:-1])
    for queue in queues:
        found = queue.read_many(THREADS)
        expected = [result[queue.name] for result in results[:-1]] + [results[-1]] * (queue is queues[-1])
        assert {each.message_id: each.payload for each in found} == {key: n for n, key in enumerate(expected)}
        assert rising_runs([each.payload for each in found]) <= MAX_CALLS_UNDER_WAY + 2
    nothing_is_left(queues)


def test_a_full_queue_harms_no_other_queue_and_no_other_caller(
    proxy: Proxy, open_client: Open, queue_name: str
) -> None:
    client = open_client(proxy.url)
    queues = bound(client, queue_name)
    queues[1].configure(max_len=4)
    queues[1].write("-", shard_key="-")
    fresh(queues)
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queues, pool, [published(queues, n) for n in range(THREADS)])
        proxy.heal()
        results = [future.result(60) for future in futures]
    refused = [result for result in results if isinstance(result, PartlyPublished)]
    assert len(refused) == THREADS - 3
    for error in refused:
        kinds = [type(error.results[queue.name]) for queue in queues]
        assert kinds == [Written, QueueFull, Written]
    assert len({id(error.results[queues[1].name]) for error in refused}) == len(refused)
    assert [queue.len() for queue in queues] == [THREADS, 4, THREADS]
    nothing_is_left(queues)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_each_publisher_ends_at_its_own_time(proxy: Proxy, queues: list[Queue]) -> None:
    fresh(queues)
    timeouts = [1.5, 0.3, 0.6, 3.0]
    spent: dict[float, float] = {}

    def timed(timeout: float) -> Any:
        began = time.monotonic()
        try:
            return published(queues, "late", timeout=timeout)()
        finally:
            spent[timeout] = time.monotonic() - began

    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queues, pool, [lambda timeout=timeout: timed(timeout) for timeout in timeouts])  # type: ignore[misc]
        errors = [future.result(60) for future in futures]
        proxy.heal()
    for error in errors:
        assert isinstance(error, PartlyPublished)
        assert {type(each) for each in error.results.values()} <= {BackendTimeout, OutcomeUnknown}
    for timeout in timeouts:
        assert timeout * 0.9 < spent[timeout] < timeout + CONNECTING
    nothing_is_left(queues)


def test_a_call_without_an_answer_is_repeated_and_stored_once(proxy: Proxy, queues: list[Queue]) -> None:
    fresh(queues)
    cut = proxy.cut_after_request(b"FCALL")
    ids = published(queues, "once")()
    assert cut.struck.is_set()
    assert {queue.name: [each.message_id for each in queue.read_many(9)] for queue in queues} == {
        name: [message_id] for name, message_id in ids.items()
    }


def test_what_is_published_again_after_the_server_was_killed_is_stored_once(
    kind: ServerKind | None, open_client: Open, queue_name: str, tmp_path: Path
) -> None:
    """Some of the failed publishes had reached some queues, without an answer or with one."""
    told: dict[int, dict[str, Any]] = {}
    failed: dict[int, dict[str, Any]] = {}
    numbers = itertools.count()
    with Server(kind, directory=tmp_path / "data") as own, open_client(own.url, timeout=1.0) as client:
        queues = bound(client, queue_name)
        fresh(queues)

        def publish_until_one_fails() -> None:
            while True:
                number = next(numbers)
                try:
                    told[number] = published(queues, number, dedup_key=f"key-{number}")()
                except PartlyPublished as error:
                    failed[number] = error.results
                    return

        with ThreadPoolExecutor(4) as pool:
            work = [pool.submit(publish_until_one_fails) for _ in range(4)]
            eventually(lambda: len(told) > 200)
            own.kill9()
            for each in work:
                each.result(60)
        own.start()
        for number, results in failed.items():
            told[number] = published(queues, number, dedup_key=f"key-{number}")()
            known = {name: result for name, result in results.items() if isinstance(result, str)}
            assert known.items() <= told[number].items()
        for queue in queues:
            found = []
            while batch := queue.read_many(100):
                found += [(each.payload, each.message_id) for each in batch]
            assert sorted(found) == sorted((number, ids[queue.name]) for number, ids in told.items())


@pytest.mark.runs_in("test-all")
def test_too_few_replicas_are_told_to_each_publisher(server: Server, open_client: Open, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        bound(client, queue_name)
    client = open_client(server.url, durability="replica(1)", timeout=0.5)
    queues = [client.queue(f"{queue_name}.{number}", create=True) for number in range(QUEUES)]
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(ended, published(queues, n, timeout=20)) for n in range(4)]
        errors = [future.result(60) for future in futures]
    for queue in queues:
        told = [error.results[queue.name] for error in errors]
        assert {type(each) for each in told} == {DurabilityUnknown}
        assert len({each.result for each in told}) == 4
        assert queue.len() == 4


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_close_ends_all_publishers(proxy: Proxy, queues: list[Queue]) -> None:
    fresh(queues)
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queues, pool, [published(queues, n) for n in range(THREADS)])
        began = time.monotonic()
        queues[0].client.close()
        errors = [future.result(60) for future in futures]
        assert time.monotonic() - began < 10
        proxy.heal()
    assert {type(error) for error in errors} <= {ClosedError, PartlyPublished}
    assert ClosedError in {type(error) for error in errors}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_publishes_beside_its_parents_publishers(proxy: Proxy, queue_name: str) -> None:
    with Client.from_url(proxy.url, timeout=60) as client, ThreadPoolExecutor(THREADS) as pool:
        queues = bound(client, queue_name)
        fresh(queues)
        proxy.blackhole()
        futures = meet(queues, pool, [published(queues, n) for n in range(4)])
        proxy.heal()
        child(bounded(lambda: str(len(published(queues, "the child's")()))))
        assert all(len(future.result(60)) == QUEUES for future in futures)
        assert [queue.len() for queue in queues] == [5] * QUEUES


def test_an_interrupted_publisher_leaves_alone(proxy: Proxy, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C strikes the thread that makes the calls of all three queues: who waits behind it takes them over."""
    with Client.from_url(proxy.url, timeout=60) as client, ThreadPoolExecutor(THREADS) as pool:
        queues = bound(client, queue_name)
        fresh(queues)
        struck = threading.Event()
        driver: Any = client._driver
        answers = driver._carry_out

        def interrupted(exchange: Any) -> Any:
            if struck.is_set():
                return answers(exchange)
            eventually(lambda: waiting(queues[-1]) >= 3, what="others wait")
            struck.set()
            raise KeyboardInterrupt

        monkeypatch.setattr(driver, "_carry_out", interrupted)
        first = pool.submit(published(queues, 0))
        eventually(lambda: waiting(queues[-1]) >= 1)
        others = [pool.submit(ended, published(queues, n)) for n in (1, 2)]
        with pytest.raises(KeyboardInterrupt):
            first.result(60)
        assert all(len(other.result(60)) == QUEUES for other in others)
        nothing_is_left(queues)
        assert all({1, 2} <= {each.payload for each in queue.read_many(9)} for queue in queues)


def test_a_cancelled_publisher_leaves_alone(proxy: Proxy, queue_name: str) -> None:
    with Client.from_url(proxy.url) as client:
        bound(client, queue_name)

    async def run() -> None:
        async with AsyncClient.from_url(proxy.url) as client:
            names = [f"{queue_name}.{number}" for number in range(QUEUES)]
            queues: Any = [client.queue(name, create=True) for name in names]

            async def publish(payload: Any) -> dict[str, Written]:
                return await client.publish("news", payload, shard_key="tenant", router=queue_name)

            await publish("first")
            fresh(queues)
            proxy.blackhole()
            tasks = [asyncio.create_task(publish(n)) for n in range(6)]
            await asyncio.sleep(0.3)
            for task in (tasks[0], tasks[3]):
                task.cancel()
            await asyncio.sleep(0.1)
            proxy.heal()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
            assert cancelled == [True, False, False, True, False, False]
            for queue in queues:
                found = {each.payload for each in await queue.read_many(20)}
                assert {"first", 1, 2, 4, 5} <= found
                assert waiting(queue) == 0
                assert all_free(queue.state)
            assert not any(isinstance(result, ShardqError) for result in results)

    asyncio.run(run())
