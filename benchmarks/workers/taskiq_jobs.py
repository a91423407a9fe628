"""taskiq: `taskiq worker benchmarks.workers.taskiq_jobs:broker`."""

from __future__ import annotations

import asyncio

import uvloop
from taskiq_redis import RedisStreamBroker

from benchmarks.workers import counting

TOGETHER = 100
broker = RedisStreamBroker(counting.URL, max_connection_pool_size=2 * TOGETHER)


async def work(payload: str) -> None:
    """The job."""
    await counting.work_async(payload)


job = broker.task(work)


async def _enqueue(payloads: list[str]) -> None:
    for at in range(0, len(payloads), TOGETHER):
        await asyncio.gather(*(job.kiq(each) for each in payloads[at : at + TOGETHER]))


def enqueue(payloads: list[str]) -> None:
    """A hundred calls at a time."""
    global _loop
    if _loop is None:
        _loop = uvloop.new_event_loop()
        _loop.run_until_complete(broker.startup())
    _loop.run_until_complete(_enqueue(payloads))


_loop: asyncio.AbstractEventLoop | None = None
