"""What one client makes of the clocks stops no queue: late calls, machines that stood still, jumps to and fro."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import structs

from shardq import Client, Empty, LeaseLost, Queue
from tests.fault.server.test_clock import HOUR, Shimmed, movable, window  # noqa: F401 # fixtures
from tests.servers import Server
from tests.waiting import eventually

LONG = 120.0  # a lease time that no test can wait for
SOON = 20.0
DAY = 24 * HOUR


def stood_still(queue: Queue, seconds: float) -> None:
    """As if the machine of this queue's client had been paused just now, while the server's clock went on."""
    state, back = queue.state, round(seconds * 1000)
    assert state.server_time is not None
    state.server_time = structs.replace(
        state.server_time, ms=state.server_time.ms - back, steady=state.server_time.steady - back
    )


def watched(queue: Queue, seconds: float) -> None:
    """As if this queue's client had looked again and again for so long."""
    state = queue.state
    assert state.server_time is not None
    state.server_time = structs.replace(state.server_time, steady=state.server_time.steady - round(seconds * 1000))


def lost(queue: Queue, text: str = "lost", *, lasts: float = 0.3) -> str:
    """A message whose holder is gone and whose lease of *lasts* seconds will end."""
    message_id = queue.write(text, shard_key="tenant")
    assert queue.read(visibility_timeout=lasts).message_id == message_id
    return message_id


def over(server: Server, queue: Queue) -> bool:
    """Whether a lease of *queue* has ended that nobody has taken back."""
    seconds, microseconds = server.run("TIME")
    with server.client() as plain:
        scored: Any = plain.zrange(queue.state.keys.leases, 0, -1, withscores=True)
    return any(score % 2**42 <= seconds * 1000 + microseconds // 1000 for _, score in scored if score < 9e15)


@pytest.fixture
def healthy(server: Server, queue_name: str, window: int) -> Iterator[Queue]:  # noqa: F811
    """A queue with long leases, whose client has seen the server's clock."""
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=4, visibility_timeout=LONG, window=window)
        queue.write("-", shard_key="-")
        queue.read().ack()
        yield queue


@pytest.fixture
def paused(server: Server, healthy: Queue) -> Iterator[Queue]:
    """The same queue for a client whose machine is paused in the test."""
    with Client.from_url(server.url) as client:
        queue = client.queue(healthy.name, create=True)
        assert queue.read_many(1) == []
        yield queue


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_lease_that_ends_in_an_outage_is_delivered_when_the_server_is_back(server: Server, healthy: Queue) -> None:
    with ThreadPoolExecutor(1) as pool, Client.from_url(server.url) as other:
        message_id = lost(healthy, lasts=2.0)
        reading = pool.submit(other.queue(healthy.name, create=True).read, block=LONG)
        eventually(lambda: b"cmd=xreadgroup" in server.run("CLIENT", "LIST"), what="a blocked read")
        server.pause()
        try:
            stopped = time.monotonic()
            eventually(lambda: time.monotonic() - stopped > 4, what="an outage")  # the look is due after 1 s
        finally:
            server.resume()
        assert reading.result(SOON).message_id == message_id


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_stall_of_one_call_stops_the_queue_for_nobody(server: Server, healthy: Queue, paused: Queue) -> None:
    """A call that arrives late is told in it what the server's clock should have shown long ago."""
    message_id = lost(healthy)
    with ThreadPoolExecutor(1) as pool:
        server.pause()
        try:
            reading = pool.submit(paused.read_many, 1)  # sent now, run when the server goes on
            stopped = time.monotonic()
            eventually(lambda: time.monotonic() - stopped > 2.5, what="a stall")
        finally:
            server.resume()
        found = reading.result(SOON) or [healthy.read(block=SOON)]
    assert [each.message_id for each in found] == [message_id]


def test_a_machine_that_stood_still_stops_the_queue_for_nobody(server: Server, healthy: Queue, paused: Queue) -> None:
    message_id = lost(healthy)
    eventually(lambda: over(server, healthy))
    stood_still(paused, 60)
    watched(healthy, 90)
    assert paused.read_many(1) == []  # to it the server's clock is a minute ahead
    assert b"jump=" in server.run("HGET", healthy.state.keys.meta, "odd")
    assert healthy.read().message_id == message_id
    assert b"jump=" not in server.run("HGET", healthy.state.keys.meta, "odd")


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_machine_that_stood_still_does_not_stop_itself_for_longer_than_that(server: Server, paused: Queue) -> None:
    message_id = lost(paused)
    eventually(lambda: over(server, paused))
    stood_still(paused, 3)
    assert paused.read(block=SOON).message_id == message_id


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_after_a_jump_each_lease_ends_at_its_own_time(movable: Shimmed, window: int) -> None:  # noqa: F811
    with Client.from_url(movable.url) as client:
        queue = client.queue("jobs", streams=4, visibility_timeout=LONG, window=window)
        short = lost(queue, lasts=1.0)
        queue.write("long", shard_key="tenant")
        long = queue.read()
        movable.jump(HOUR)
        assert queue.read(block=SOON).message_id == short
        with pytest.raises(Empty):
            queue.read()
        long.ack()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_jump_and_its_way_back_leave_nothing_behind(movable: Shimmed, window: int) -> None:  # noqa: F811
    with Client.from_url(movable.url) as client:
        queue = client.queue("jobs", streams=4, visibility_timeout=LONG, window=window)
        message_id = lost(queue, lasts=2.0)
        movable.jump(DAY)
        eventually(lambda: abs(movable.run("TIME")[0] - time.time()) > 3600, what="the clock's jump")
        assert queue.read_many(1) == []
        assert queue.read_many(1) == []
        movable.jump(0)
        assert queue.read(block=SOON).message_id == message_id
        eventually(lambda: b"jump=" not in movable.run("HGET", queue.state.keys.meta, "odd"), what="nothing is left")


@pytest.mark.runs_in("test-all")
def test_a_lease_that_was_given_while_the_clock_was_ahead_is_still_its_holders(movable: Shimmed, window: int) -> None:  # noqa: F811
    with Client.from_url(movable.url) as client:
        queue = client.queue("jobs", streams=4, visibility_timeout=LONG, window=window)
        queue.write("-", shard_key="-")
        queue.read().ack()
        movable.jump(DAY)
        eventually(lambda: abs(movable.run("TIME")[0] - time.time()) > 3600, what="the clock's jump")
        queue.write("work", shard_key="tenant")
        held = queue.read(block=SOON, visibility_timeout=1.0)
        movable.jump(0)
        eventually(lambda: abs(movable.run("TIME")[0] - time.time()) < 3600, what="the clock's way back")
        held.extend(0.5)
        assert queue.read(block=SOON).message_id == held.message_id
        with pytest.raises(LeaseLost):
            held.ack()
