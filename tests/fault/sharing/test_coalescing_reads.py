"""Readers that share calls: each gets its own messages within its own time, and none is lost to one who has left."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Lock
from typing import Any

import pytest

from shardq import (
    AsyncClient,
    AsyncDelivery,
    BackendError,
    BackendTimeout,
    Client,
    Delivery,
    Empty,
    OutcomeUnknown,
    Queue,
)
from shardq.drivers.sharing import MAX_CALLS_UNDER_WAY
from tests.fault.conftest import Open
from tests.fault.sharing.test_coalescing import THREADS, Breaker, ended, meet, warmed
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import eventually

MANY, TURNS = 64, 10


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str) -> Queue:
    """A queue behind the proxy, which its client knows already."""
    queue = open_client(proxy.url, timeout=60).queue(queue_name, streams=4)
    queue.write("-", shard_key="-")
    queue.read().ack()
    return queue


def payloads(found: list[Any]) -> list[Any]:
    return sorted(each.payload for each in found)


def test_readers_who_wait_share_a_call_and_each_gets_a_message(proxy: Proxy, queue: Queue) -> None:
    queue.write_many([(n, f"t{n}") for n in range(THREADS)])
    sent = proxy.copies(b"FCALL")
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [queue.read] * THREADS, "read")
        proxy.heal()
        found = [future.result(60) for future in futures]
    assert len(sent) <= MAX_CALLS_UNDER_WAY + 2  # the last two are for halves of those who waited
    assert payloads(found) == list(range(THREADS))
    assert queue.stats().in_flight == THREADS
    assert queue.ack_many(found) == []


def test_of_more_readers_than_messages_the_others_find_nothing(proxy: Proxy, queue: Queue) -> None:
    queue.write_many([(n, f"t{n}") for n in range(5)])
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [queue.read] * THREADS, "read")
        proxy.heal()
        found = [future.result(60) for future in futures]
    assert payloads([each for each in found if not isinstance(each, Empty)]) == list(range(5))


def test_no_thread_is_told_that_a_queue_is_empty_which_is_not(
    open_client: Open, server: Server, queue_name: str
) -> None:
    queue = open_client(server.url).queue(queue_name, streams=64, streams_per_shard=6)
    queue.write_many([(n, f"t{n}") for n in range(MANY * TURNS)])
    with ThreadPoolExecutor(MANY) as pool:
        futures = [pool.submit(lambda: [queue.read() for _ in range(TURNS)]) for _ in range(MANY)]
        found = list(chain.from_iterable(future.result(60) for future in futures))
    assert payloads(found) == list(range(MANY * TURNS))


def test_no_task_is_told_that_a_queue_is_empty_which_is_not(server: Server, queue_name: str) -> None:
    async def main() -> None:
        async with AsyncClient.from_url(server.url) as client:
            queue = client.queue(queue_name, streams=64, streams_per_shard=6)
            await queue.write_many([(n, f"t{n}") for n in range(MANY * TURNS)])

            async def read_some(_: int) -> list[AsyncDelivery]:
                return [await queue.read() for _ in range(TURNS)]

            found = await asyncio.gather(*map(read_some, range(MANY)))
            assert payloads(list(chain.from_iterable(found))) == list(range(MANY * TURNS))

    asyncio.run(main())


def test_readers_of_other_leases_share_no_call(proxy: Proxy, queue: Queue) -> None:
    queue.write_many([(n, f"t{n}") for n in range(8)])
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        calls = [lambda n=n: (n, queue.read(visibility_timeout=10 + n % 2 * 1000)) for n in range(8)]
        futures = meet(queue, pool, calls, "read")
        proxy.heal()
        found = [future.result(60) for future in futures]
    now = queue.state.clock.monotonic()
    assert [each.deadline - now > 100 for _, each in found] == [bool(n % 2) for n, _ in found]
    assert payloads([each for _, each in found]) == list(range(8))


@pytest.mark.runs_in("test-all")
def test_the_message_of_a_reader_whose_time_is_up_is_given_back(proxy: Proxy, queue: Queue) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        warmed(queue, proxy, pool)
        queue.write_many([(n, f"t{n}") for n in range(4)])
        proxy.blackhole()
        timeouts = [30, 30, 0.5, 0.5]
        calls = [lambda left=left: queue.read(timeout=left) for left in timeouts]
        futures = meet(queue, pool, calls, "read")
        # Whose last try ends just before its time is up is told that it may have been made: both may be told.
        assert {type(future.result(60)) for future in futures[2:]} <= {BackendTimeout, OutcomeUnknown}
        proxy.heal()
        found = [future.result(60) for future in futures[:2]]
    assert len({each.payload for each in found}) == 2
    rest = [queue.read(block=20) for _ in range(2)]
    assert payloads([*found, *rest]) == list(range(4))
    assert [each.count for each in rest] == [1, 1]


def test_blocked_readers_get_their_messages(queue: Queue) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(queue.read, block=60) for _ in range(THREADS)]
        for n in range(THREADS):
            queue.write(n, shard_key=f"t{n}")
        assert payloads([future.result(60) for future in futures]) == list(range(THREADS))


def test_each_reader_gets_the_refusal_of_a_call_that_they_shared(proxy: Proxy, server: Server, queue: Queue) -> None:
    key = queue.state.keys.notifications
    with ThreadPoolExecutor(THREADS) as pool:
        proxy.blackhole()
        futures = meet(queue, pool, [queue.read] * 8, "read")
        server.run("DEL", key)
        server.run("SET", key, "another type")
        proxy.heal()
        errors = [future.result(60) for future in futures]
    server.run("DEL", key)
    assert {type(error) for error in errors} == {BackendError}
    assert len({id(error) for error in errors}) == 8


def test_cancelled_readers_lose_no_message(proxy: Proxy, queue_name: str) -> None:
    async def main() -> None:
        async with AsyncClient.from_url(proxy.url, timeout=60) as client:
            queue = client.queue(queue_name, streams=4)
            await queue.write_many([(n, f"t{n}") for n in range(40)])
            await (await queue.read()).nack()
            proxy.blackhole()
            tasks = [asyncio.ensure_future(queue.read()) for _ in range(20)]
            await asyncio.sleep(0.05)
            later = [asyncio.ensure_future(queue.read()) for _ in range(20)]
            await asyncio.sleep(0)
            for task in (*tasks[::2], *later[1::2]):
                task.cancel()
            await asyncio.sleep(0)
            proxy.heal()
            results = await asyncio.gather(*tasks, *later, return_exceptions=True)
            found = [each for each in results if not isinstance(each, BaseException)]
            assert len(found) == 20
            while len(found) < 40:
                found.append(await queue.read(block=20))
            assert payloads(found) == list(range(40))

    asyncio.run(main())


def test_readers_that_are_cancelled_at_any_moment_lose_no_message(proxy: Proxy, queue_name: str) -> None:
    async def main() -> None:
        async with AsyncClient.from_url(proxy.url, timeout=60) as client:
            queue = client.queue(queue_name, streams=4)
            await queue.write_many([(n, f"t{n}") for n in range(100)])
            found: list[Any] = []
            for turn in range(40):
                tasks = [asyncio.ensure_future(queue.read()) for _ in range(4)]
                for _ in range(turn):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                found += [each for each in results if not isinstance(each, BaseException)]
                if len(found) >= 90:
                    break
            while len(found) < 100:
                found.append(await queue.read(block=20))
            assert payloads(found) == list(range(100))

    asyncio.run(main())


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("seed", range(2))
def test_each_message_is_read_and_acked_once_while_links_break(
    proxy: Proxy, server: Server, queue: Queue, seed: int
) -> None:
    queue.write_many([(number, f"t{number % 7}") for number in range(300)])
    done: list[Any] = []
    lock = Lock()

    def work(_: int) -> None:
        while True:
            found = ended(lambda: queue.read(timeout=60))
            if isinstance(found, Empty):
                return
            found.ack(timeout=60)
            with lock:
                done.append(found.payload)

    with ThreadPoolExecutor(THREADS) as pool, Breaker(proxy, seed):
        list(pool.map(work, range(THREADS)))
    with Client.from_url(server.url) as client:
        other = client.queue(queue.name, create=True)
        eventually(lambda: _drained(other, done) == 300, what="all are read")
        stats = other.stats()
    assert sorted(done) == list(range(300))
    assert (stats.backlog, stats.in_flight) == (0, 0)


def _drained(queue: Queue, done: list[Any]) -> int:
    """Read and ack what was given back after the readers had found nothing. Return how many were done in all."""
    found: list[Delivery] = queue.read_many(100)
    queue.ack_many(found)
    done += [each.payload for each in found]
    return len(done)
