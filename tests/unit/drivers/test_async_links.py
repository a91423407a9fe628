"""The links that one caller of an asyncio client at a time has alone: which one is next, and which are closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.drivers.async_links import AsyncLinks, Place
from shardq.errors import ClosedError

SILENCE = 20.0
SOON = 15.0
PLACE: Place = (None, False)


class Pools(dict[Place, Any]):
    """Stands for redis-py's pools, of which there is one. The test has the other ends of its connections."""

    def __init__(self) -> None:
        super().__init__({PLACE: self})
        self.sentinels: list[Any] = []
        self.most_idle = 0.0
        self.servers: list[socket.socket] = []
        self.released = asyncio.Queue[Any]()
        self.connected, self.may_connect = asyncio.Event(), asyncio.Event()
        self.may_connect.set()

    async def connect(self, _: Any, seconds: float) -> Any:
        """A connection as redis-py hands it out."""
        assert seconds > 0
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        _reader, writer = await asyncio.open_connection(sock=ours)
        self.servers.append(theirs)
        self.connected.set()
        await self.may_connect.wait()

        async def disconnect(*, nowait: bool) -> None:
            assert nowait
            writer.close()

        return SimpleNamespace(_writer=writer, disconnect=disconnect, host="h", port=1)

    async def release(self, connection: Any) -> None:
        """Take one back."""
        self.released.put_nowait(connection)


@pytest.fixture
async def pools() -> AsyncIterator[Pools]:
    """No connection yet."""
    pools = Pools()
    yield pools
    for server in pools.servers:
        server.close()


@pytest.fixture
async def links(pools: Pools) -> AsyncIterator[AsyncLinks]:
    """The links of `pools`."""
    links = AsyncLinks(pools, pools.connect, SILENCE)  # type: ignore[arg-type] # what it needs of them
    yield links
    links.close()
    await asyncio.sleep(0)


async def released(pools: Pools) -> Any:
    """The next connection that its pool gets back."""
    return await asyncio.wait_for(pools.released.get(), SOON)


async def test_the_link_that_was_used_last_is_used_next(pools: Pools, links: AsyncLinks) -> None:
    first, second = await links.take(PLACE, 1), await links.take(PLACE, 1)
    links.give(PLACE, first)
    links.give(PLACE, second)
    assert [await links.take(PLACE, 1), await links.take(PLACE, 1)] == [second, first]
    assert len(pools.servers) == 2


@pytest.mark.parametrize("said", [b":", b":1\r\n", b":1\r\n:2"], ids=["little", "half", "most"])
async def test_a_link_whose_caller_went_away_before_all_was_said_is_closed(
    pools: Pools, links: AsyncLinks, said: bytes
) -> None:
    link = await links.take(PLACE, 1)
    waiting = link.ask(b"?", 2, SILENCE)
    link.get_buffer(-1)[: len(said)] = said
    link.buffer_updated(len(said))
    waiting.cancel()
    links.give(PLACE, link)
    assert await released(pools) is link.connection
    assert await links.take(PLACE, 1) is not link


async def test_a_link_that_the_server_closes_while_nobody_uses_it_is_not_used_again(
    pools: Pools, links: AsyncLinks
) -> None:
    link = await links.take(PLACE, 1)
    links.give(PLACE, link)
    pools.servers[0].close()
    assert await released(pools) is link.connection
    assert await links.take(PLACE, 1) is not link


async def test_when_a_node_is_no_master_any_more_no_link_to_it_is_kept(pools: Pools, links: AsyncLinks) -> None:
    first, second = await links.take(PLACE, 1), await links.take(PLACE, 1)
    links.give(PLACE, first)
    waiting = second.ask(b"?", 1, SILENCE)
    await asyncio.get_running_loop().sock_sendall(pools.servers[1], b"-READONLY no\r\n")
    (refused,) = await waiting
    assert refused.code == "READONLY"
    links.give(PLACE, second)
    assert {id(await released(pools)), id(await released(pools))} == {id(first.connection), id(second.connection)}
    assert await links.take(PLACE, 1) not in (first, second)


async def test_a_link_to_a_former_master_is_not_used_when_the_sentinels_name_another(
    pools: Pools, links: AsyncLinks
) -> None:
    pools.master_address = ("h", 1)  # type: ignore[attr-defined] # as pools with sentinels have it
    link = await links.take(PLACE, 1)
    links.give(PLACE, link)
    assert await links.take(PLACE, 1) is link
    links.give(PLACE, link)
    pools.master_address = ("other", 2)  # type: ignore[attr-defined]
    assert await links.take(PLACE, 1) is not link
    assert await released(pools) is link.connection


async def test_a_closed_client_has_no_link_left_whoever_has_it_or_makes_one(pools: Pools, links: AsyncLinks) -> None:
    idle, taken = await links.take(PLACE, 1), await links.take(PLACE, 1)
    links.give(PLACE, idle)
    pools.connected.clear()
    pools.may_connect.clear()
    making = asyncio.ensure_future(links.take(PLACE, 1))
    making_too = asyncio.ensure_future(links.take(PLACE, 1))
    assert (await making) is idle
    await pools.connected.wait()
    links.close()
    pools.may_connect.set()
    with pytest.raises(ClosedError):
        await making_too
    links.give(PLACE, taken)
    links.give(PLACE, idle)
    assert idle.closed
    assert taken.closed
    for _ in range(3):
        await released(pools)


async def test_a_caller_is_cancelled_also_if_connecting_loses_that(pools: Pools) -> None:
    """As `asyncio.wait_for` of Python 3.11 does. The connection goes back when it comes."""
    begun = asyncio.Event()

    async def connect(pool: Any, seconds: float) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await pools.connect(pool, seconds)

    links = AsyncLinks(pools, connect, SILENCE)  # type: ignore[arg-type] # what it needs of them
    caller = asyncio.create_task(links.take(PLACE, 1))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (await released(pools)).host == "h"
    links.close()
