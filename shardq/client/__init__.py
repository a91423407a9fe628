"""The public API: clients, queues and deliveries, for threads and (as twins with the same methods) for asyncio.

Those for threads are generated from those for asyncio by `make twins`. `sync_base`, `sync_writing` and their twins are
not: they have what really differs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from shardq.client.client import Client
from shardq.client.delivery import Delivery
from shardq.client.queue import Queue
from shardq.client.writer import Writer

if TYPE_CHECKING:
    from shardq.client.async_client import AsyncClient
    from shardq.client.async_delivery import AsyncDelivery
    from shardq.client.async_queue import AsyncQueue
    from shardq.client.async_writer import AsyncWriter

__all__ = ["AsyncClient", "AsyncDelivery", "AsyncQueue", "AsyncWriter", "Client", "Delivery", "Queue", "Writer"]

_FOR_ASYNCIO: Final = {
    "AsyncClient": "async_client",
    "AsyncDelivery": "async_delivery",
    "AsyncQueue": "async_queue",
    "AsyncWriter": "async_writer",
}


def __getattr__(name: str) -> object:
    """Import what is for asyncio when it is first asked for: a program has one kind of client."""
    if name not in _FOR_ASYNCIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"shardq.client.{_FOR_ASYNCIO[name]}"), name)
