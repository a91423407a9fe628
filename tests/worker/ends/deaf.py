"""Jobs that heed nothing, for programs: each notes again and again that it still runs, in the file SHARDQ_TEST_LOG."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from shardq.tasks import Tasks
from tests.worker.ends.catalogue import SETTINGS

LONG = 600.0
"""Seconds: far longer than any grace, and until all jobs of a command have begun."""
tasks: Tasks[None] = Tasks("default", **SETTINGS)
mixed: Tasks[None] = Tasks("default", **SETTINGS)


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
    """A plain task, in a Worker."""
    goes_on(name)


@mixed.task(name="deaf_beside_async")
def deaf_beside_async(name: str) -> None:
    """A plain task, in an AsyncWorker."""
    goes_on(name)


@mixed.task(name="deaf_in_its_own_thread")
async def deaf_in_its_own_thread(name: str) -> None:
    """An async task that waits for a thread."""
    await asyncio.to_thread(goes_on, name)


@mixed.task(name="heeds")
def heeds(name: str) -> None:
    """One that ends soon after it is told to."""
    while not mixed.delivery.lost:
        tick(name)
        time.sleep(0.01)
    time.sleep(0.2)
    tick("left")


async def handle_async(delivery: Any) -> None:
    """An async handler that goes on, whoever cancels it."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        tick(delivery.payload)
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
