"""arq: `arq benchmarks.workers.arq_jobs.Settings`."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.workers import counting

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
SERVER = RedisSettings.from_dsn(counting.URL)
TOGETHER = 100


async def work(_: Any, payload: str) -> None:
    """The job."""
    await counting.work_async(payload)


class Settings:
    """The worker's."""

    functions = (work,)
    redis_settings = SERVER
    max_jobs = 100
    poll_delay = 0.01
    keep_result = 0


async def _enqueue(payloads: list[str]) -> None:
    for at in range(0, len(payloads), TOGETHER):
        await asyncio.gather(*(_pool.enqueue_job("work", each) for each in payloads[at : at + TOGETHER]))


def enqueue(payloads: list[str]) -> None:
    """A hundred calls at a time."""
    global _pool, _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        _pool = _loop.run_until_complete(create_pool(SERVER))
    _loop.run_until_complete(_enqueue(payloads))


_loop: asyncio.AbstractEventLoop | None = None
_pool: Any = None
