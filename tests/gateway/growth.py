"""`python -m tests.gateway.growth URL NAME`: by how many bytes a gateway's storage grows by 2,000 names of no queues.

It prints that, and how many queues its client still knows.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc

from shardq import AsyncClient
from shardq.gateway.received import Envelope, Incoming
from shardq.gateway.storing import Storage, StoreOutcome


async def store_into_nowhere(storage: Storage, name: str, first: int, count: int) -> None:
    """Try to store as many messages as there are names of queues, none of which exists."""
    for at in range(first, first + count, 250):
        batch = [
            Incoming(b"%d" % number, Envelope(f"{name}.{number}", "", b"t", "b", {}, 0), b"", False, 0, False)
            for number in range(at, at + 250)
        ]
        outcome: StoreOutcome = await storage.store("t", 1000, batch)
        assert len(outcome.refused) == 250


async def grown(url: str, name: str) -> tuple[int, int]:
    """What stays allocated of them, after 500 others."""
    async with AsyncClient.from_url(url) as client:
        storage = Storage(client, 60.0, "default")
        await store_into_nowhere(storage, name, 0, 500)
        gc.collect()
        tracemalloc.start()
        await store_into_nowhere(storage, name, 500, 2_000)
        gc.collect()
        return tracemalloc.get_traced_memory()[0], len(client._states)


if __name__ == "__main__":
    print(*asyncio.run(grown(sys.argv[1], sys.argv[2])))
