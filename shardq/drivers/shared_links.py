"""The shared links of an asyncio client, one to each node: they are opened once for all who wait for one."""

from __future__ import annotations

import asyncio
from functools import partial

from shardq.drivers.async_link import AsyncLink
from shardq.drivers.async_links import AsyncLinks
from shardq.drivers.pools import Pools
from shardq.drivers.target import Address
from shardq.ops.queue.steps import Refused, Unanswered


class SharedLinks:
    """The shared links to the nodes of *pools*, made by *links*. Each is to be made within *seconds*."""

    def __init__(self, pools: Pools, links: AsyncLinks, seconds: float) -> None:
        self._pools, self._made, self._seconds = pools, links, seconds
        self._links: dict[Address | None, AsyncLink] = {}
        self._opening: dict[Address | None, asyncio.Task[AsyncLink]] = {}

    async def get(self, address: Address | None, seconds: float) -> AsyncLink:
        """Return the link to *address*, if need be opened within *seconds*. Raises `Unanswered` or `Refused`."""
        link = self._links.get(address)
        if link is None or link.closed or link.retired:
            return await self.open(address, seconds)
        pools = self._pools
        if (pools.sentinels or pools.most_idle) and self._made.is_outdated((address, False), link):
            link.retire()
            return await self.open(address, seconds)
        return link

    async def open(self, address: Address | None, seconds: float) -> AsyncLink:
        """Open the link to *address*, once for all who wait for it: they do not notice if one of them gives up."""
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

    async def _open(self, address: Address | None) -> AsyncLink:
        link = self._links[address] = await self._made.make((address, False), self._seconds)
        return link

    def _opened(self, address: Address | None, opening: asyncio.Task[AsyncLink]) -> None:
        del self._opening[address]
        if not opening.cancelled():
            opening.exception()  # those who still wait get it
