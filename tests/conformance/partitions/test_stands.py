"""Blocked readers of a queue with partitions: what comes is nobody's loss, whoever leaves, and whenever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from shardq import AsyncClient, Client, ClosedError, Empty, Queue
from shardq.client import async_stands, sync_stands
from shardq.partitions import resize
from shardq.partitions.asking import ask_map
from shardq.partitions.homes import home
from tests.servers import Server
from tests.waiting import eventually

SOON = 30.0
PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
MORE = PARTITIONS + 2
FAR = next(f"tenant-{number}" for number in range(99) if home(f"tenant-{number}", MORE) == MORE - 1)
"""A tenant of the last of more partitions."""
SETTINGS: dict[str, Any] = {"partitions": PARTITIONS, "streams": 4, "streams_per_shard": 2}


@pytest.fixture
def queue(server: Server, queue_name: str) -> Iterator[Queue]:
    """A queue with partitions, whose client has no blocked reader."""
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, **SETTINGS)
        queue.declare()
        yield queue


@pytest.fixture
def reading(server: Server, queue: Queue) -> Iterator[Queue]:
    """The same queue for another client, which reads."""
    with Client.from_url(server.url) as client:
        yield client.queue(queue.name, **SETTINGS)


def waiting(queue: Any) -> int:
    """How many readers of this client wait for messages."""
    stands = queue.state.parts and queue.state.parts.common.stands
    return len(stands._waiting) if stands else 0


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until *condition* holds."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.001)


def taken(queue: Queue, count: int) -> list[Any]:
    """So many deliveries, acked, as they come."""
    found: list[Any] = []
    while len(found) < count:
        some = queue.read_many(count - len(found), block=SOON)
        assert some
        queue.ack_many(some)
        found += some
    return found


def test_a_reader_of_one_gets_one_and_what_came_beside_goes_back_uncounted(queue: Queue, reading: Queue) -> None:
    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            read = pool.submit(reading.read, block=SOON)
            eventually(lambda: waiting(reading) == 1)
            queue.write_many([(tenant, tenant) for tenant in TENANTS.values()])
            first = read.result(SOON)
            first.ack()
            others = taken(queue, PARTITIONS - 1)
            assert {each.payload for each in [first, *others]} == set(TENANTS.values())
            assert {each.count for each in [first, *others]} == {1}


def test_a_reader_that_waits_while_its_client_deletes_the_queue_reads_the_next_one(
    server: Server, queue: Queue, reading: Queue
) -> None:
    """Which another client makes with more partitions: the reader waits at these within the age of a map."""
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reading.read, block=SOON)
        eventually(lambda: waiting(reading) == 1)
        reading.delete(expected=0)
        with Client.from_url(server.url) as other:
            other.queue(queue.name, **{**SETTINGS, "partitions": MORE}).write("next", shard_key=FAR)
        delivery = read.result(SOON)
    assert (delivery.payload, getattr(delivery, "partition", None)) == ("next", MORE - 1)
    delivery.ack()


async def test_a_task_that_waits_while_its_client_deletes_the_queue_reads_the_next_one(
    server: Server, queue: Queue
) -> None:
    async with AsyncClient.from_url(server.url) as client:
        reading: Any = client.queue(queue.name, **SETTINGS)
        read = asyncio.create_task(reading.read(block=SOON))
        await until(lambda: waiting(reading) == 1)
        await reading.delete(expected=0)
        with Client.from_url(server.url) as other:
            other.queue(queue.name, **{**SETTINGS, "partitions": MORE}).write("next", shard_key=FAR)
        delivery = await read
        assert delivery.payload == "next"
        await delivery.ack()


def test_what_comes_after_the_last_reader_left_is_there_for_others(queue: Queue, reading: Queue) -> None:
    with pytest.raises(Empty):
        reading.read(block=0.05)
    queue.write_many([(tenant, tenant) for tenant in TENANTS.values()])
    assert {each.count for each in taken(queue, PARTITIONS)} == {1}


def test_readers_with_leases_of_different_length_get_theirs(queue: Queue, reading: Queue) -> None:
    with ThreadPoolExecutor(2) as pool:
        reads = [pool.submit(reading.read, block=SOON, visibility_timeout=each) for each in (20.0, 200.0)]
        eventually(lambda: waiting(reading) == 2)
        queue.write_many([(n, TENANTS[1]) for n in range(2)])
        short, long = [each.result(SOON) for each in reads]
    assert short.remaining < 20.0 < 100.0 < long.remaining
    reading.ack_many([short, long])


def test_a_reader_for_whom_there_is_no_thread_leaves_nothing_behind(
    queue: Queue, reading: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_but_one(thread: threading.Thread) -> None:
        if thread.name == "shardq-stand-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as changed:
        changed.setattr(threading.Thread, "start", start_but_one)
        with pytest.raises(RuntimeError, match="new thread"):
            reading.read(block=SOON)
    assert waiting(reading) == 0
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reading.read, block=SOON)
        eventually(lambda: waiting(reading) == 1)
        queue.write("here", shard_key=TENANTS[1])
        assert read.result(SOON).count == 1


def test_a_stand_that_breaks_is_made_again(queue: Queue, reading: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = threading.Event()

    def break_stand(args: Any) -> None:
        assert args.exc_type is MemoryError
        broken.set()

    def no_memory(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(threading, "excepthook", break_stand)
    with monkeypatch.context() as changed:
        changed.setattr(sync_stands, "read", no_memory)
        with pytest.raises(Empty):
            reading.read(block=0.05)
        assert broken.wait(SOON)
        eventually(lambda: not stands_of(reading)._threads)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reading.read, block=SOON)
        eventually(lambda: waiting(reading) == 1)
        queue.write("here", shard_key=TENANTS[1])
        assert read.result(SOON).count == 1


def stands_of(queue: Any) -> Any:
    return queue.state.parts.common.stands


def test_a_wait_can_be_ended_from_another_thread(reading: Queue) -> None:
    with ThreadPoolExecutor(1) as pool:
        threads = [pool.submit(threading.get_ident).result(SOON)]
        read = pool.submit(reading.read_many, 1, block=SOON * 10)
        eventually(lambda: waiting(reading) == 1)
        reading.client.end_wait(threads[0])
        assert read.result(SOON) == []


@pytest.mark.parametrize("readers", [1, 8])
def test_a_client_that_is_closed_ends_its_waits(server: Server, queue: Queue, readers: int) -> None:
    client = Client.from_url(server.url)
    jobs = client.queue(queue.name, **SETTINGS)
    with ThreadPoolExecutor(readers) as pool:
        reads = [pool.submit(jobs.read, block=SOON * 10) for _ in range(readers)]
        eventually(lambda: waiting(jobs) == readers)
        client.close()
        assert {type(each.exception(SOON)) for each in reads} == {ClosedError}


async def test_an_async_client_that_is_closed_ends_its_waits(server: Server, queue: Queue) -> None:
    client = AsyncClient.from_url(server.url)
    jobs = client.queue(queue.name, **SETTINGS)
    reads = [asyncio.create_task(jobs.read(block=SOON * 10)) for _ in range(8)]
    await until(lambda: waiting(jobs) == 8)
    await client.aclose()
    ended = await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), SOON)
    assert {type(each) for each in ended} == {ClosedError}


async def test_stands_whose_leases_nobody_wants_any_more_end(
    server: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while others wait, whose leases are of another length."""
    monkeypatch.setattr(async_stands, "BLOCK", 0.05)
    async with AsyncClient.from_url(server.url) as client:
        jobs: Any = client.queue(queue.name, **SETTINGS)
        read = asyncio.create_task(jobs.read(block=SOON))
        await until(lambda: waiting(jobs) == 1)
        for number in range(5):
            with pytest.raises(Empty):
                await jobs.read(block=0.01, visibility_timeout=20 + number)
        await until(lambda: len(jobs.state.parts.common.stands._tasks) == PARTITIONS)
        await jobs.write("last", shard_key=TENANTS[2])
        assert (await read).payload == "last"


async def test_a_reader_that_is_cancelled_takes_nothing_away(server: Server, queue: Queue) -> None:
    """At whatever moment: before what comes, while it comes, and when it is there."""
    async with AsyncClient.from_url(server.url) as client:
        jobs = client.queue(queue.name, **SETTINGS)
        for number in range(30):
            read = asyncio.create_task(jobs.read(block=SOON))
            await until(lambda: waiting(jobs) == 1)
            write = asyncio.create_task(jobs.write(number, shard_key=TENANTS[number % PARTITIONS]))
            for _ in range(number):
                await asyncio.sleep(0)
            read.cancel()
            await write
            with suppress(asyncio.CancelledError):
                await (await read).ack()
                continue
            delivery = await jobs.read(block=SOON)
            assert (delivery.payload, delivery.count) == (number, 1)
            await delivery.ack()
        assert await jobs.len() == 0
    assert queue.len() == 0


def test_a_reader_beside_a_resize_hears_of_the_next_one(
    server: Server, reading: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that it waits in has made the first one: what it keeps for its readers stays."""
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)
    with ThreadPoolExecutor(1) as pool, Client.from_url(server.url) as client:
        read = pool.submit(reading.read, block=SOON)
        eventually(lambda: waiting(reading) == 1)
        reading.resize(partitions=4)
        other = client.queue(reading.name)
        other.resize(partitions=6)
        reading.client.run(ask_map(reading.state, reading.state.until()))  # as it does every 5 s
        other.write("new", shard_key=next(f"t-{n}" for n in range(1000) if home(f"t-{n}", 6) == 5))
        came: Any = read.result(SOON)
        assert came.partition == 5


@pytest.mark.parametrize("count", [1, 4])
async def test_a_read_that_is_cancelled_leaves_nothing_behind(server: Server, queue: Queue, count: int) -> None:
    """At whatever moment: its messages are there for others, uncounted, and nothing counts as asked for."""
    async with AsyncClient.from_url(server.url) as client:
        jobs: Any = client.queue(queue.name, **SETTINGS)
        await jobs.read_many(1)
        for moment in range(25):
            await jobs.write_many([(number, TENANTS[number % PARTITIONS]) for number in range(6)])
            read = asyncio.create_task(jobs.read_many(count))
            for _ in range(moment):
                await asyncio.sleep(0)
            read.cancel()
            with suppress(asyncio.CancelledError):
                await jobs.ack_many(await read)
            await until(lambda: not client._tasks)
            assert sum(each.asked for each in jobs.state.parts.turns._turns) == 0
            while some := await jobs.read_many(6):
                assert {each.count for each in some} == {1}
                await jobs.ack_many(some)
            assert await jobs.len() == 0
