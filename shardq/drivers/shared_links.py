"""The shared links of an asyncio client, one to each node: they are opened once for all who wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from shardq.drivers.pools import Pools, leads_to_master
from shardq.drivers.shared_link import SharedLink
from shardq.drivers.target import Address
from shardq.drivers.wire import CLOSED_MEANWHILE
from shardq.errors import ClosedError
from shardq.ops.queue.steps import Refused, Unanswered


class SharedLinks:
    """The links to the nodes of *pools*. *connect* takes a connection from a pool; *silence* is as in `SharedLink`."""

    def __init__(self, pools: Pools, connect: Callable[[Any], Awaitable[Any]], silence: float) -> None:
        self._pools, self._connect, self._silence = pools, connect, silence
        self._links: dict[Address | None, SharedLink] = {}
        self._opening: dict[Address | None, asyncio.Task[SharedLink]] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        self._closed = False

    def get(self, address: Address | None) -> SharedLink | None:
        """Return the link to *address*; None if it must be opened first."""
        link = self._links.get(address)
        if link is None or link.closed or link.retired:
            return None
        if self._pools.sentinels and not leads_to_master(self._pools[address, False], link.connection):
            link.retire()
            return None
        return link

    async def open(self, address: Address | None, seconds: float) -> SharedLink:
        """Return the link to *address*, opened within *seconds*. Others who wait for it do not notice if one gives up.

        Raises `Unanswered` or `Refused`.
        """
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.get_running_loop().create_task(self._open(address))
            opening.add_done_callback(partial(self._opened, address))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(opening)
        except TimeoutError:
            raise Unanswered("TimeoutError: no connection in time", sent=False) from None
        except Refused as refused:
            raise Refused(refused.code, refused.text) from refused
        except Unanswered as failure:
            raise Unanswered(str(failure), sent=False) from failure

    def close(self) -> None:
        """Close all links. One that is being opened closes when it is there."""
        self._closed = True
        for link in self._links.values():
            link.close(ConnectionAbortedError("this client was closed"))

    async def _open(self, address: Address | None) -> SharedLink:
        pool = self._pools[address, False]
        connection = await self._connect(pool)
        if self._closed:
            await _give_back(pool, connection)
            raise ClosedError(CLOSED_MEANWHILE)
        link = self._links[address] = SharedLink(connection, self._silence, partial(self._lost, pool))
        return link

    def _opened(self, address: Address | None, opening: asyncio.Task[SharedLink]) -> None:
        del self._opening[address]
        if not opening.cancelled():
            opening.exception()  # those who still wait get it

    def _lost(self, pool: Any, link: SharedLink) -> None:
        task = asyncio.get_running_loop().create_task(_give_back(pool, link.connection))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)


async def _give_back(pool: Any, connection: Any) -> None:
    """Give a connection of no more use back to its pool, which may connect it again."""
    await connection.disconnect(nowait=True)
    await pool.release(connection)
