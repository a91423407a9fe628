"""A call waits in line for one of the client's connections, as long as it has time; and its own timeout counts."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from shardq import BackendTimeout, OutcomeUnknown, PartlyWritten, ShardqError
from shardq.drivers.permits import MIN_TRY, AllBusy, AsyncPermits
from shardq.drivers.sync import Driver
from tests.clients import CLIENT_KINDS, opened
from tests.servers import Server
from tests.waiting import eventually

MANY = 12
STALL = 2.6  # seconds: more than it may take to make a connection, which once was all that a call waited for one


@pytest.fixture
def stalling() -> Iterator[Server]:
    """A server that a test may suspend."""
    with Server() as server:
        yield server
        server.resume()


@pytest.fixture(params=CLIENT_KINDS)
def client(request: pytest.FixtureRequest, stalling: Server) -> Iterator[Any]:
    """A client of either kind, with one connection and much time, that knows the queue `jobs`."""
    with opened(request.param, stalling.url, timeout=30, max_connections=1) as client:
        client.queue("jobs", streams=1).read_many(1)  # it is there, so that a write is one call
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads to call from."""
    with ThreadPoolExecutor(MANY) as pool:
        yield pool


def line(client: Any) -> tuple[int, bool]:
    """How many calls wait for a connection, and whether all connections are in use."""
    driver = client._driver
    if isinstance(driver, Driver):
        links = driver._links[None, False]
        return len(links._waiting), not links._spare and not links._idle
    semaphore = driver._permits[None]._semaphore
    return len(semaphore._waiters or ()), semaphore.locked()


def waiting(client: Any) -> int:
    """How many calls wait for a connection."""
    return line(client)[0]


def occupied(client: Any, pool: ThreadPoolExecutor) -> Future[str]:
    """A write that has the connection, on which nothing comes."""
    first = pool.submit(client.queue("jobs", create=True).write, "first", shard_key="t")
    eventually(lambda: line(client)[1])
    return first


@pytest.mark.runs_in("test-all")
def test_calls_get_a_connection_in_the_order_in_which_they_came(
    client: Any, stalling: Server, pool: ThreadPoolExecutor
) -> None:
    """Also when the server stalls for longer than it may take to connect, and when it does not know the script yet.

    A `write_many` is a call of its own, while single writes of one queue would share one.
    """
    stalling.pause()
    first = occupied(client, pool)
    calls: list[Future[list[str]]] = []
    for number in range(1, MANY):
        calls.append(pool.submit(client.queue("jobs", create=True).write_many, [(number, "t")]))
        eventually(lambda number=number: waiting(client) == number)  # type: ignore[misc]
    assert not threading.Event().wait(STALL)
    assert waiting(client) == MANY - 1
    stalling.resume()
    order = [
        int(message_id.split("-")[1]) for message_id in (first.result(30), *(call.result(30)[0] for call in calls))
    ]
    assert order == sorted(order)
    assert client.queue("jobs", create=True).len() == MANY


def one_write(queue: Any, seconds: float) -> None:
    """Rides in the next call of the queue at first; after a moment without one it is to make another."""
    queue.write("second", shard_key="t", timeout=seconds)


def a_call_of_its_own(queue: Any, seconds: float) -> None:
    """Needs a connection at once."""
    try:
        queue.write_many([("second", "t")], timeout=seconds)
    except PartlyWritten as partly:
        raise cast("ShardqError", partly.results[0]) from None


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("write", [one_write, a_call_of_its_own])
def test_a_call_whose_time_is_up_in_the_line_says_so_and_nothing_happened(
    client: Any, stalling: Server, pool: ThreadPoolExecutor, write: Callable[[Any, float], None]
) -> None:
    """It says how long it stood in the line: from when it was seen there, at the latest, until its time was up."""
    stalling.pause()
    first = occupied(client, pool)
    started = time.monotonic()
    second = pool.submit(write, client.queue("jobs", create=True), 0.3)
    eventually(lambda: waiting(client) == 1 or second.done(), every=0.001)
    left = started + 0.3 - time.monotonic()
    with pytest.raises(BackendTimeout, match=r"all 1 connections .* were busy for \S+ s: raise max_") as told:
        second.result(30)
    assert time.monotonic() - started >= 0.3
    (seconds,) = re.findall(r"busy for (\S+) s", str(told.value))
    assert max(left, MIN_TRY) - 0.001 <= float(seconds) <= 0.3
    assert waiting(client) == 0
    stalling.resume()
    assert first.result(30)
    assert [each.payload for each in client.queue("jobs", create=True).read_many(9)] == ["first"]


def test_a_calls_own_timeout_ends_a_try_that_is_not_answered(client: Any, stalling: Server) -> None:
    """Not the client's, nor the 5 s that a try may take at most; and the next call has a connection that works."""
    queue = client.queue("jobs", create=True)
    stalling.pause()
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="may have happened"):
        queue.write("work", shard_key="t", timeout=0.3)
    assert time.monotonic() - started < 4
    stalling.resume()
    assert queue.write("more", shard_key="t")


def test_more_callers_than_connections_are_all_served(server: Server, queue_name: str) -> None:
    """Two connections, 400 calls at once."""

    def connections() -> set[str]:
        return {each["id"] for each in server.client().client_list() if "shardq-call" in each["name"]}

    for client_kind in CLIENT_KINDS:
        others = connections()
        with opened(client_kind, server.url, timeout=30, max_connections=2) as client, ThreadPoolExecutor(40) as pool:
            queue = client.queue(queue_name, streams=4)
            ids = set(pool.map(lambda number, queue=queue: queue.write(number, shard_key="t"), range(400)))
            assert len(ids) == 400
            assert 1 <= len(connections() - others) <= 2


async def test_a_coroutine_that_is_cancelled_in_the_line_takes_no_turn() -> None:
    permits = AsyncPermits(1)
    await permits.take(9)
    first, second = (asyncio.ensure_future(permits.take(9)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    permits.give()
    await second
    with pytest.raises(AllBusy, match="all 1 connections"):
        await permits.take(0.01)
    permits.give()
    await permits.take(9)
