"""An asyncio task cancelled at every point where it can be: no reply goes to the wrong caller, nothing stays away."""

from __future__ import annotations

import asyncio
import itertools
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, TypeVar, cast

import pytest

from shardq import AsyncClient, AsyncQueue, Client
from tests.proxy import Proxy
from tests.servers import Server

T = TypeVar("T")
SOON = 15.0  # far below the lease time of 30 s


def functions_in(work: Any) -> Iterator[str]:
    """The names of the functions that a suspended coroutine is in."""
    while work is not None:
        code = getattr(work, "cr_code", None) or getattr(work, "gi_code", None)
        if code:
            yield code.co_qualname
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)


@types.coroutine
def cancelled_at(
    number: int, work: Coroutine[Any, Any, T], points: list[set[str]] | None = None
) -> Generator[Any, Any, T]:
    """Run *work*, and cancel the current task when *work* waits for the nth time; append to *points* where it was."""
    waits = itertools.count()
    resume: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            waiting: Any = resume(value)
        except StopIteration as done:
            return cast("T", done.value)
        if next(waits) == number:
            if points is not None:
                points.append(set(functions_in(work)))
            task = asyncio.current_task()
            assert task
            task.cancel()
        try:
            value = yield waiting
            resume = work.send
        except BaseException as error:  # noqa: BLE001 - handed on as it is
            resume, value = work.throw, error


async def at_every_point(work: Any, check: Any, most: int = 60) -> int:
    """Cancel *work* at its first wait, its second, ... and *check* after each, until it ends first; how many waits."""
    for number in range(most):
        task = asyncio.ensure_future(cancelled_at(number, work()))
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
            return number
        await check()
    raise AssertionError("it never came to an end")


@pytest.fixture(params=[1, 2])
def max_connections(request: pytest.FixtureRequest) -> int:
    """With a single connection, calls use it one after the other; with more, they share one."""
    return int(request.param)


@pytest.fixture
async def warm(server: Server, queue_name: str, max_connections: int) -> Any:
    """A queue through a connection that is open already."""
    async with AsyncClient.from_url(server.url, max_connections=max_connections, timeout=20) as client:
        queue = client.queue(queue_name, streams=4)
        await queue.write("-", shard_key="-")
        await (await queue.read()).ack()
        yield queue


async def test_a_cancelled_write_happened_whole_or_not_at_all_and_shifts_no_reply(warm: AsyncQueue) -> None:
    values = map(str, itertools.count())
    sent: list[str] = []

    async def work() -> str:
        sent.append(next(values))
        return await warm.write(sent[-1], shard_key="tenant")

    async def check() -> None:
        before = (await warm.stats()).written
        message_id = await warm.write("mine", shard_key="other")
        assert await warm.cancel(message_id) == "removed"
        assert (await warm.stats()).written == before + 1

    points = await at_every_point(work, check)
    assert points >= 1
    found = [delivery.payload for delivery in await warm.read_many(100)]
    assert len(found) == len(set(found))
    assert sent[-1] in found
    assert set(found) <= set(sent)


async def test_what_a_cancelled_read_was_granted_comes_back_at_once_uncounted(warm: AsyncQueue) -> None:
    message_id = await warm.write("work", shard_key="tenant")

    async def work() -> Any:
        (delivery,) = await warm.read_many(1)
        return delivery

    async def check() -> None:
        started = time.monotonic()
        delivery = await warm.read(block=SOON)
        assert time.monotonic() - started < SOON
        assert (delivery.message_id, delivery.count) == (message_id, 1 + nacks)
        await give_back(delivery)

    nacks = 0

    async def give_back(delivery: Any) -> None:
        nonlocal nacks
        nacks += 1
        await delivery.nack()

    points = await at_every_point(work, check)
    assert points >= 1


async def test_a_cancelled_blocked_read_takes_no_message_with_it(warm: AsyncQueue, server: Server) -> None:
    async def work() -> Any:
        return await warm.read_many(1, block=0.05)

    async def check() -> None:
        message_id = await warm.write("work", shard_key="tenant")
        delivery = await warm.read(block=SOON)
        assert (delivery.message_id, delivery.count) == (message_id, 1)
        await delivery.ack()

    points = await at_every_point(work, check)
    assert points >= 2


async def test_a_first_call_that_is_cancelled_while_it_connects_leaves_the_client_usable(
    server: Server, queue_name: str, max_connections: int
) -> None:
    """It can be cancelled while it connects, and in each of five round trips: two checks of the server, open, register,
    write.

    A link is made by a task of its own, so a caller waits for it once.
    """
    points: list[set[str]] = []
    with Client.from_url(server.url) as other:
        others = other.queue(queue_name, create=True)
        for number in range(60):
            async with AsyncClient.from_url(server.url, max_connections=max_connections, timeout=20) as client:
                queue = client.queue(queue_name, streams=4)
                task = asyncio.ensure_future(cancelled_at(number, queue.write("work", shard_key="tenant"), points))
                await asyncio.wait([task])
                message_id = await queue.write("mine", shard_key="other")
                assert others.cancel(message_id) == "removed"
            others.purge()
            if not task.cancelled():
                break
    connecting = [not {"SharedLinks.open", "AsyncLinks.make"}.isdisjoint(names) for names in points]
    assert connecting == [True, False, False, False, False, False]


async def test_a_cancelled_ack_happened_or_not_and_another_settles_it(warm: AsyncQueue) -> None:
    async def work() -> None:
        await warm.write("work", shard_key="tenant")
        delivery = await warm.read()
        await delivery.ack()

    async def check() -> None:
        for delivery in await warm.read_many(10, visibility_timeout=30):
            await delivery.ack()
        # What a cancelled read was granted is looked for and then given back, perhaps behind this read.
        while (stats := await warm.stats()).backlog:
            for delivery in await warm.read_many(10, visibility_timeout=30):
                await delivery.ack()
        assert stats.written == stats.acked + stats.in_flight

    assert await at_every_point(work, check) >= 3


async def test_an_ack_that_goes_with_a_cancelled_read_can_be_given_to_the_next(warm: AsyncQueue) -> None:
    await warm.write("work", shard_key="tenant")
    previous = await warm.read()
    await warm.write("work", shard_key="tenant")

    async def work() -> None:
        await warm.read(ack=previous)

    async def check() -> None:
        nonlocal previous
        started = time.monotonic()
        delivery = await warm.read(ack=previous, block=SOON)
        assert time.monotonic() - started < SOON
        assert (delivery.count, previous.answered, previous.lost) == (1, True, False)
        await warm.write("work", shard_key="tenant")
        previous = delivery

    assert await at_every_point(work, check) >= 1
    stats = await warm.stats()
    assert (stats.in_flight, stats.written) == (1, stats.acked + 1)


async def test_a_reply_that_comes_after_its_caller_was_cancelled_goes_to_nobody(
    server: Server, queue_name: str, max_connections: int
) -> None:
    with Proxy(server.url) as proxy:
        async with AsyncClient.from_url(proxy.url, max_connections=max_connections, timeout=20) as client:
            queue = client.queue(queue_name, streams=4)
            await queue.write("-", shard_key="-")
            assert await queue.len() == 1
            proxy.delay(0.1)
            for _ in range(3):
                told = asyncio.ensure_future(queue.len())
                await asyncio.sleep(0.03)  # the request is on its way, the reply is not
                told.cancel()
                assert (await queue.stats()).backlog == 1


async def test_many_callers_of_whom_some_are_cancelled_get_their_own_replies(server: Server, queue_name: str) -> None:
    async with AsyncClient.from_url(server.url, max_connections=4) as client:
        queue = client.queue(queue_name, streams=4)

        async def write(number: int) -> tuple[int, str]:
            return number, await queue.write(number, shard_key=f"tenant-{number % 5}")

        tasks = [asyncio.ensure_future(write(number)) for number in range(300)]
        for task in tasks[::3]:
            asyncio.get_running_loop().call_later(0.0005 * tasks.index(task), task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        told = {message_id: number for number, message_id in (each for each in results if isinstance(each, tuple))}
        assert len(told) >= 200
        found: dict[str, int] = {}
        while deliveries := await queue.read_many(100):
            found |= {delivery.message_id: delivery.payload for delivery in deliveries}
        assert {message_id: found[message_id] for message_id in told} == told
        assert len(set(found.values())) == len(found)
