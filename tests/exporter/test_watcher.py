"""The watchers of queues end when nobody listens any more."""

from __future__ import annotations

import asyncio
from typing import Any

from shardq import AsyncClient
from shardq.exporter.watcher import Watchers


async def test_a_watcher_ends_whose_look_has_lost_its_cancellation() -> None:
    looked, asked = asyncio.Event(), 0

    async def ask(queue: str, *, early: bool = False) -> Any:
        nonlocal asked
        asked += 1
        looked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # as where an answer comes at the same moment
            return None

    async with AsyncClient.from_url("redis://127.0.0.1:1") as client:
        watchers = Watchers(client, ask, lambda _: {})
        with watchers.listening("jobs", Any):  # type: ignore[arg-type]
            await looked.wait()
            async with asyncio.timeout(60):
                await watchers.close()
    assert (asked, len(watchers)) == (1, 0)
