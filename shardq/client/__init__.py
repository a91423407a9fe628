"""The public API: clients, queues and deliveries, for threads and (as twins with the same methods) for asyncio.

Those for threads are generated from those for asyncio by `make twins`. `sync_base`, `sync_writing` and their twins are
not: they have what really differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.client.action import Action
from shardq.client.client import Client
from shardq.client.delivery import Delivery
from shardq.client.queue import Queue
from shardq.client.writer import Writer
from shardq.later import names_from

if TYPE_CHECKING:
    from shardq.client.async_action import AsyncAction
    from shardq.client.async_client import AsyncClient
    from shardq.client.async_delivery import AsyncDelivery
    from shardq.client.async_queue import AsyncQueue
    from shardq.client.async_writer import AsyncWriter

__all__ = [
    "Action",
    "AsyncAction",
    "AsyncClient",
    "AsyncDelivery",
    "AsyncQueue",
    "AsyncWriter",
    "Client",
    "Delivery",
    "Queue",
    "Writer",
]

__getattr__ = names_from(
    __name__,
    {
        "AsyncAction": "shardq.client.async_action",
        "AsyncClient": "shardq.client.async_client",
        "AsyncDelivery": "shardq.client.async_delivery",
        "AsyncQueue": "shardq.client.async_queue",
        "AsyncWriter": "shardq.client.async_writer",
    },
)
"""A program has one kind of client."""
