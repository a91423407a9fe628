"""A delivery of a worker, as its async functions have it: the worker's own object is one, for all functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from shardq.arguments import function
from shardq.client.async_delivery import AsyncDelivery
from shardq.client.leases import _call

if TYPE_CHECKING:
    from shardq.client.async_queue import AsyncQueue
    from shardq.client.delivery import Delivery

DELIVERY_FIELDS: Final = (
    "received",
    "answered",
    "dead",
    "took",
    "besides",
    "work",
    "_codecs",
    "_clock",
    "_lost",
    "_told",
    "_cost",
    "_lease",
)
"""The fields of the worker's own delivery, for all its faces."""


class AsyncFace(AsyncDelivery):
    """The worker's `Delivery`, for an event loop: a settlement of one of them is the other's, too."""

    __slots__ = ("_held",)

    def __init__(self, held: Delivery, queue: AsyncQueue) -> None:
        self._held, self._queue = held, queue

    def __repr__(self) -> str:
        """Show which message it is; never its payload or token."""
        return f"Async{self._held!r}"

    def on_lost(self, callback: Callable[[Self], object]) -> None:
        """Call *callback* once in this event loop, as `AsyncDelivery.on_lost` does."""
        loop = asyncio.get_running_loop()
        lost = partial(_call, function("callback", callback), self)

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lost)

        self._lease.when_lost(tell)


def _of_held(name: str) -> Any:
    """Return a property that is the attribute *name* of what is held."""

    def get(face: AsyncFace) -> Any:
        return getattr(face._held, name)

    def put(face: AsyncFace, value: Any) -> None:
        setattr(face._held, name, value)

    return property(get, put)


for _name in DELIVERY_FIELDS:
    setattr(AsyncFace, _name, _of_held(_name))
