"""Jobs that heed nothing, for programs: each notes again and again that it still runs, in the file SHARDQ_TEST_LOG."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from shardq.tasks import Tasks
from tests.worker.ends.catalogue import SETTINGS

LONG = 60.0
"""Seconds: far longer than any grace."""
tasks: Tasks[None] = Tasks("default", **SETTINGS)


def tick(name: str) -> None:
    """One line, whole even when several processes write."""
    file = os.open(os.environ["SHARDQ_TEST_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"tick {name} 1 {os.getpid()} {time.time():.6f}\n".encode())
    os.close(file)


def goes_on(name: str) -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        tick(name)
        time.sleep(0.01)


def handle(delivery: Any) -> None:
    """A plain handler."""
    goes_on(delivery.payload)


@tasks.task(name="deaf")
def deaf(name: str) -> None:
    """A plain task, which `shardq worker` runs beside async ones."""
    goes_on(name)


async def handle_async(delivery: Any) -> None:
    """An async handler that goes on, whoever cancels it."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        tick(delivery.payload)
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
