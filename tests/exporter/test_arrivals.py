"""Waiting for messages without reading any."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from shardq import AsyncClient, AsyncQueue
from shardq.ops.inspect.arrivals import MAX_STREAMS, arrival
from tests.acl import Users
from tests.servers import Cluster, Server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient.from_url(server.url) as made:
        yield made


async def waited(client: AsyncClient, queue: AsyncQueue, seconds: float = 30.0) -> bool | None:
    """Whether something was written since now."""
    stats = await queue.stats()
    return await client.run(arrival(client.state_of(queue.name, {}), len(stats.streams), stats.time, seconds))


async def test_it_ends_with_the_first_message_and_delivers_none(client: AsyncClient) -> None:
    queue = client.queue("jobs", streams=8)
    await queue.write("before", shard_key="acme")
    waiting = asyncio.create_task(waited(client, queue))
    await asyncio.sleep(0)
    begun = time.monotonic()
    while not waiting.done():  # in whatever stream it comes
        await queue.write("x", shard_key=f"tenant-{time.monotonic()}")
        await asyncio.wait([waiting], timeout=0.1)
    assert await waiting is True
    assert time.monotonic() - begun < 20
    stats = await queue.stats()
    assert (stats.in_flight, stats.delivered) == (0, 0)


async def test_what_was_written_between_the_look_and_the_wait_ends_it_at_once(client: AsyncClient) -> None:
    queue = client.queue("jobs", streams=4)
    await queue.read_many(1)
    stats = await queue.stats()
    await queue.write("x", shard_key="acme")
    state = client.state_of("jobs", {})
    assert await client.run(arrival(state, 4, stats.time, 30.0)) is True


async def test_without_a_message_it_ends_with_its_time(client: AsyncClient) -> None:
    queue = client.queue("jobs", streams=4)
    await queue.write("before", shard_key="acme")
    await asyncio.sleep(0.002)  # ids are of the millisecond
    assert await waited(client, queue, 0.1) is False


async def test_it_is_not_known_of_many_streams_and_without_the_right(client: AsyncClient, server: Server) -> None:
    await client.queue("many", streams=MAX_STREAMS + 1).write("x", shard_key="acme")
    assert await waited(client, client.queue("many")) is None
    await client.queue("jobs", streams=4).write("x", shard_key="acme")
    users = Users(server)
    try:
        for role, expected in {"observer": False, "autoscaler": False, "producer": None}.items():
            async with AsyncClient.from_url(users.url(role)) as allowed:
                state = allowed.state_of("jobs", {})
                assert await allowed.run(arrival(state, 4, time.time() + 1000, 0.05)) is expected, role
    finally:
        users.remove()


async def test_on_a_cluster_it_waits_where_the_queue_is(cluster: Cluster) -> None:
    async with AsyncClient.from_url(cluster.url) as client:
        for number in range(6):  # on several nodes
            queue = client.queue(f"jobs-{number}", streams=4)
            await queue.read_many(1)
            waiting = asyncio.create_task(waited(client, queue))
            await asyncio.wait([waiting], timeout=0.2)
            await queue.write("x", shard_key="acme")
            assert await waiting is True
