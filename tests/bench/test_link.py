"""The model of a link: all bytes arrive in order, and no sooner than such a link could carry them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from random import Random

import pytest

from benchmarks.edge.link import SEGMENT, Direction, Flow, Link, Quality

pytestmark = pytest.mark.runs_in("test-all")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def linked(quality: Quality) -> AsyncIterator[Link]:
    """A link to a server that sends back what it gets."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with Link(f"127.0.0.1:{port}", quality) as link:
            yield link
    finally:
        server.close()


async def sent_and_back(link: Link, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)

    async def send() -> None:
        writer.write(data)
        await writer.drain()

    sending = asyncio.ensure_future(send())
    try:
        found = await reader.readexactly(len(data))
        await sending
    finally:
        writer.close()
    return found


@pytest.mark.parametrize("loss", [0.0, 0.05])
async def test_all_bytes_arrive_in_order_and_no_sooner_than_they_can(rng: Random, loss: float) -> None:
    quality = Quality(bandwidth=20e6, round_trip=0.02, loss=loss)
    data = [rng.randbytes(100_000) for _ in range(3)]
    async with linked(quality) as link:
        begun = time.monotonic()
        assert await asyncio.gather(*(sent_and_back(link, each) for each in data)) == data
        took = time.monotonic() - begun
        assert link.up.carried == link.down.carried == 300_000
    assert took >= 300_000 * 8 / quality.bandwidth + quality.round_trip


async def test_a_connection_that_is_cut_ends_at_both_sides() -> None:
    async with linked(Quality()) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        link.cut()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


def test_a_loss_costs_a_round_trip_and_a_full_buffer_is_a_loss() -> None:
    quality = Quality(bandwidth=SEGMENT * 8 * 100, round_trip=0.2)  # a hundred segments per second
    direction = Direction(quality, Random(1))
    found = [direction.send(SEGMENT, 5.0) for _ in range(40)]
    first_lost = [is_lost for _, is_lost in found].index(True)
    assert first_lost == 31
    assert [at for at, _ in found[:31]] == pytest.approx([5.1 + 0.01 * (at + 1) for at in range(31)])
    assert found[31][0] == pytest.approx(found[30][0] + 0.01 + 0.2)


async def test_a_window_grows_by_what_is_acked_and_is_halved_by_a_loss() -> None:
    direction = Direction(Quality(bandwidth=1e9, round_trip=0.002), Random(1))
    reader = asyncio.StreamReader()
    writer = _Sink()
    flow = Flow(direction, reader, writer)  # type: ignore[arg-type]
    for _ in range(200):
        await flow._send(bytes(SEGMENT))
    grown = flow.window
    assert grown > 20 * SEGMENT
    assert flow.in_flight <= grown
    direction.quality = Quality(bandwidth=1e9, round_trip=0.002, loss=1.0)
    await flow._send(bytes(SEGMENT))
    assert flow.window == pytest.approx(grown / 2, rel=0.2)


class _Sink:
    """A writer that nobody writes to."""
