"""Fixtures for tests of programs that use shardq: pytest finds them by an entry point (docs/tasks.md).

A module at the top level, and no import of shardq before a fixture is used: projects that have shardq installed and
need no fixture of it pay a few ms.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from shardq import AsyncQueue, Client, Queue
    from shardq.embedded import EmbeddedServer
    from shardq.testing import ManualClock


@pytest.fixture(scope="session")
def shardq_server() -> Iterator[EmbeddedServer]:
    """A private server for this run of tests: `shardq_server.url` is its URL."""
    from shardq.embedded import EmbeddedServer

    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def shardq_client(shardq_server: EmbeddedServer) -> Iterator[Client]:
    """A client of that server, which holds nothing when a test begins."""
    import redis

    from shardq import Client

    with redis.from_url(shardq_server.url) as server:
        server.flushall()
    with Client.from_url(shardq_server.url) as client:
        yield client


@pytest.fixture
def shardq_queue(shardq_client: Client) -> Callable[..., Queue]:
    """Makes a queue on that server: `shardq_queue(tasks)`, or of a name and settings."""

    def queue(of: Any, **settings: Any) -> Queue:
        return shardq_client.queue(of, **settings)

    return queue


@pytest.fixture
def shardq_async_queue(shardq_client: Client) -> Callable[..., AbstractAsyncContextManager[AsyncQueue]]:
    """Makes a queue for asyncio, with any plugin for async tests, as `async with` has it."""

    @asynccontextmanager
    async def queue(of: Any, **settings: Any) -> AsyncIterator[AsyncQueue]:
        from shardq import AsyncClient

        async with AsyncClient.beside(shardq_client) as client:
            yield client.queue(of, **settings)

    return queue


@pytest.fixture
def shardq_clock() -> ManualClock:
    """A clock that runs by itself, and that a test puts forward: `shardq_clock.advance(3600)`."""
    from shardq.testing import ManualClock

    return ManualClock(runs=True)


@pytest.fixture
def shardq_clocked_queue(shardq_clock: ManualClock) -> Iterator[Callable[..., Queue]]:
    """Makes a queue whose time is that of `shardq_clock`, on an imitation of a server, for a Worker as well."""
    from shardq.testing import fake_client

    with fake_client(clock=shardq_clock) as client:

        def queue(of: Any, **settings: Any) -> Queue:
            return client.queue(of, **settings)

        yield queue


@pytest.fixture
def shardq_async_clocked_queue(
    shardq_clock: ManualClock,
) -> Callable[..., AbstractAsyncContextManager[AsyncQueue]]:
    """Makes such a queue for asyncio and an AsyncWorker, as `async with` has it. All of a test are on one imitation."""
    from shardq.testing.fake import fake_async_client, fake_server

    server = fake_server()

    @asynccontextmanager
    async def queue(of: Any, **settings: Any) -> AsyncIterator[AsyncQueue]:
        async with fake_async_client(server=server, clock=shardq_clock) as client:
            yield client.queue(of, **settings)

    return queue
