"""All links of an asyncio client. The ones that one caller at a time has alone wait here while nobody needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from shardq.drivers.async_link import AsyncLink
from shardq.drivers.pools import Pools, leads_to_master
from shardq.drivers.target import Address
from shardq.drivers.wire import CLOSED_MEANWHILE
from shardq.errors import ClosedError

Place: TypeAlias = tuple[Address | None, bool]
"""A node, and whether the link is for blocking reads: the key of a pool."""


class AsyncLinks:
    """The twin of `Links`, for all of *pools*. *connect* takes a connection from a pool within this many seconds.

    A server that owes an answer may be silent for *silence* seconds.
    """

    def __init__(self, pools: Pools, connect: Callable[[Any, float], Coroutine[Any, Any, Any]], silence: float) -> None:
        self._pools, self._connect, self._silence = pools, connect, silence
        self._open: set[AsyncLink] = set()
        self._idle: dict[Place, list[AsyncLink]] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def make(self, place: Place, seconds: float) -> AsyncLink:
        """Return a new link, connected within *seconds*. Raises `Unanswered` or `Refused`."""
        pool = self._pools[place]
        # In a task of its own: where redis-py asks a Sentinel, it may lose a cancellation, as `asyncio.wait_for` of
        # Python 3.11 does if its result comes at that moment. Then the caller would not end.
        opening = asyncio.get_running_loop().create_task(self._connect(pool, seconds))
        try:
            connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.cancel()
            opening.add_done_callback(partial(self._give_back_unwanted, pool))
            raise
        if self._closed:
            await _give_back(pool, connection)
            raise ClosedError(CLOSED_MEANWHILE)
        link = AsyncLink(connection, self._silence, partial(self._lost, place))
        self._open.add(link)
        return link

    async def take(self, place: Place, seconds: float) -> AsyncLink:
        """Return a link for the caller alone, which gives it back with `give`. If it must be made, do as `make`."""
        idle = self._idle.get(place)
        while idle:
            link = idle.pop()  # the one that was used last
            if link.is_idle() and not self.is_outdated(place, link):
                return link
            link.close(ConnectionAbortedError("the link was not fit for use any more"))
        return await self.make(place, seconds)

    def give(self, place: Place, link: AsyncLink) -> None:
        """Keep *link* for the next caller. It is closed if not all that was asked for has come."""
        if link.retired:
            self._drop_idle(place)
        if link.is_idle() and not self._closed:
            self._idle.setdefault(place, []).append(link)
        else:
            link.close(ConnectionAbortedError("the caller went away"))

    def is_outdated(self, place: Place, link: AsyncLink) -> bool:
        """Return whether *link* shall not be used again: it leads to a former master, or was idle for too long."""
        if not leads_to_master(self._pools[place], link.connection):
            return True
        return bool(self._pools.most_idle) and link.was_idle(self._pools.most_idle)

    def close(self) -> None:
        """Close all links. One that is being made closes when it is there."""
        self._closed = True
        for link in list(self._open):
            link.close(ConnectionAbortedError("this client was closed"))

    def _drop_idle(self, place: Place) -> None:
        for link in self._idle.pop(place, []):
            link.close(ConnectionAbortedError("the node is no longer a master"))

    def _lost(self, place: Place, link: AsyncLink) -> None:
        self._open.discard(link)
        with suppress(ValueError):
            self._idle.get(place, []).remove(link)
        self._release(self._pools[place], link.connection)

    def _give_back_unwanted(self, pool: Any, opening: asyncio.Task[Any]) -> None:
        """Give back a connection that came though the caller had gone."""
        if not opening.cancelled() and opening.exception() is None:
            self._release(pool, opening.result())

    def _release(self, pool: Any, connection: Any) -> None:
        task = asyncio.get_running_loop().create_task(_give_back(pool, connection))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)


async def _give_back(pool: Any, connection: Any) -> None:
    """Give a connection of no more use back to its pool, which may connect it again."""
    await connection.disconnect(nowait=True)
    await pool.release(connection)
