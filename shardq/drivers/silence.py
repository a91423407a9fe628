"""How long a server may say nothing: asyncio's clocks bound a whole exchange, but an answer may take long to come.

A socket's timeout, by which the driver for threads bounds an answer, begins anew with whatever was received. So does
this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from redis.asyncio.connection import DefaultParser

_ON_RECEIVED: Final[ContextVar[Callable[[], None] | None]] = ContextVar("shardq_on_received", default=None)


class NotifyingParser(DefaultParser):  # type: ignore[misc, valid-type, unused-ignore] # one of two, by what is installed
    """redis-py's parser, which tells the task that reads whenever something came."""

    async def read_from_socket(self) -> Any:
        """As redis-py's."""
        more = await super().read_from_socket()
        if (on_received := _ON_RECEIVED.get()) is not None:
            on_received()
        return more


@contextmanager
def postponed(limit: asyncio.Timeout, seconds: float) -> Iterator[None]:
    """Whatever comes puts *limit* off, to so many *seconds* from then."""
    loop = asyncio.get_running_loop()

    def on_received() -> None:
        if not limit.expired():
            limit.reschedule(max(loop.time() + seconds, limit.when() or 0.0))

    token = _ON_RECEIVED.set(on_received)
    try:
        yield
    finally:
        _ON_RECEIVED.reset(token)
