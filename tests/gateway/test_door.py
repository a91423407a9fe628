"""The door passes bytes on, also the last ones: what grpc says before it ends a connection reaches the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from shardq.clock import Clock, SystemClock
from shardq.gateway.door import Door
from shardq.gateway.memory import MemoryBudget
from shardq.gateway.notices import Notices
from shardq.gateway.settings import GatewaySettings
from shardq.gateway.visitor import Visitor
from shardq.testing import ManualClock

pytestmark = pytest.mark.runs_in("test-all")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def door(serve: Serve, clock: Clock | None = None) -> AsyncIterator[tuple[Door, str, int]]:
    """A door before *serve*, which stands for grpc; and where the door listens."""
    clock = clock or SystemClock()
    settings = GatewaySettings("127.0.0.1:0", insecure=True, connections_per_address=100)
    found = Door(settings, clock, Notices(clock))
    served: set[asyncio.Task[object] | None] = set()

    async def to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_unix_server(to_the_end, found.inside)
    found.listen()
    try:
        host, _, port = found.entrances[0].address.rpartition(":")
        yield found, host, int(port)
    finally:
        found.close()
        await asyncio.gather(*(each for each in served if each))
        server.close()


async def ended(writer: asyncio.StreamWriter) -> None:
    """End a connection of a client at once."""
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_the_last_words_reach_a_client_that_still_sends() -> None:
    """They wait behind a client's bytes that nobody reads any more. A reset would take them away."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"why it ends")
        writer.transport.close()  # with bytes unread, as grpc does after an error of the protocol

    async def send(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 200)
                await writer.drain()
                await asyncio.sleep(0)

    async with door(serve) as (_, host, port):
        for _ in range(50):
            reader, writer = await asyncio.open_connection(host, port)
            sending = asyncio.create_task(send(writer))
            try:
                assert await asyncio.wait_for(reader.read(), 30) == b"why it ends"
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await ended(writer)


async def test_a_client_that_goes_away_is_noticed_though_nobody_reads_what_it_has_sent() -> None:
    """Its calls would keep the places of its token. As much of it waits on the way as HTTP/2 allows."""
    ends, is_open = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitor = found.visitor(writer.get_extra_info("peername"))
        assert visitor is not None
        visitor.enter()
        visitor.ahead.begin(serve, MemoryBudget(1 << 30).share("t"))
        is_open.set()
        reading = asyncio.create_task(read_slowly(visitor))
        while await reader.read(1 << 16):  # as grpc does, however slowly the messages are read from it
            pass
        reading.cancel()
        ends.set()

    async def read_slowly(visitor: Visitor) -> None:
        while True:
            visitor.ahead.got(serve, 1)
            await asyncio.sleep(0.002)

    async with door(serve) as (found, host, port):
        _, writer = await asyncio.open_connection(host, port)
        await is_open.wait()
        writer.write(bytes(256 * 1024))
        await writer.drain()
        await ended(writer)
        await asyncio.wait_for(ends.wait(), 30)


@pytest.mark.parametrize("has_token", [True, False])
async def test_only_who_has_shown_no_token_may_send_little(has_token: bool) -> None:
    """Between two calls of a connection, too: the rest of a call that was ended may still be on its way.

    The clock stands still, so that nothing more is allowed as time passes.
    """
    came, arrived, is_open = 0, asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        visitor = found.visitor(writer.get_extra_info("peername"))
        assert visitor is not None
        if has_token:
            visitor.enter()
            visitor.leave()
        is_open.set()
        while data := await reader.read(1 << 16):
            came += len(data)
            if came >= (1 << 20 if has_token else 16 * 1024):
                arrived.set()

    async with door(serve, ManualClock()) as (found, host, port):
        _, writer = await asyncio.open_connection(host, port)
        await is_open.wait()
        writer.write(bytes(1 << 20))
        await asyncio.wait_for(arrived.wait(), 30)
        assert came == (1 << 20 if has_token else 16 * 1024)
        await ended(writer)
