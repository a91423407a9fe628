"""Tasks that hang while SHARDQ_TEST_LOG is not there yet, which they make; later ones return their delivery's count."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from shardq.backoff import Constant
from shardq.tasks import Tasks

tasks = Tasks("jobs", visibility_timeout=2, result_ttl=60)


def is_first() -> bool:
    log = Path(os.environ["SHARDQ_TEST_LOG"])
    is_first = not log.exists()
    log.touch()
    return is_first


@tasks.task(name="held", retries=1)
async def held(width: int) -> int:
    if is_first():
        await asyncio.sleep(3600)
    return tasks.delivery.count  # type: ignore[no-any-return]


@tasks.task(name="held_once", retries=0)
async def held_once() -> int:
    if is_first():
        await asyncio.sleep(3600)
    return tasks.delivery.count  # type: ignore[no-any-return]


@tasks.task(name="hangs", retries=1, backoff=Constant(0), time_limit=0.3)
async def hangs() -> int:
    if is_first():
        await asyncio.sleep(3600)
    return tasks.delivery.count  # type: ignore[no-any-return]


plain = Tasks("jobs", visibility_timeout=2, result_ttl=60)


@plain.task(name="hangs", retries=1, backoff=Constant(0), time_limit=0.3)
def hangs_in_a_process() -> int:
    if is_first():
        time.sleep(3600)
    return plain.delivery.count  # type: ignore[no-any-return]
