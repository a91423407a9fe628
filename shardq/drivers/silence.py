"""Limit how long a server may be silent, for asyncio.

`asyncio.timeout` limits a whole exchange, but a large answer may take long to arrive. For threads, the timeout of the
socket starts again with all data that arrives. This module does the same for asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from redis.asyncio.connection import DefaultParser

_ON_RECEIVED: Final[ContextVar[Callable[[], None] | None]] = ContextVar("shardq_on_received", default=None)


class NotifyingParser(DefaultParser):  # type: ignore[misc, valid-type, unused-ignore] # one of two classes
    """redis-py's parser, which also calls a function of the reading task whenever data arrived."""

    async def read_from_socket(self) -> Any:
        """Read from the socket as redis-py does."""
        more = await super().read_from_socket()
        if (on_received := _ON_RECEIVED.get()) is not None:
            on_received()
        return more


@contextmanager
def postponed(limit: asyncio.Timeout, seconds: float) -> Iterator[None]:
    """Within this context, move *limit* to *seconds* from now whenever data arrives."""
    loop = asyncio.get_running_loop()

    def on_received() -> None:
        if not limit.expired():
            limit.reschedule(max(loop.time() + seconds, limit.when() or 0.0))

    token = _ON_RECEIVED.set(on_received)
    try:
        yield
    finally:
        _ON_RECEIVED.reset(token)
