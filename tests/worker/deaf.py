"""Tasks that hang, whatever they are told: each says first that it is inside."""

from __future__ import annotations

import asyncio
import time

from shardq.tasks import Tasks
from tests.worker.handlers import note

plain: Tasks[None] = Tasks("jobs", result_ttl=60)
mixed: Tasks[None] = Tasks("jobs", result_ttl=60)


def hang(tasks: Tasks[None]) -> None:
    note(tasks.delivery, "inside")
    time.sleep(3600)


@plain.task(name="hangs")
def hangs() -> None:
    hang(plain)


@mixed.task(name="hangs")
def hangs_beside_async() -> None:
    hang(mixed)


@mixed.task(name="hangs_in_its_own_thread")
async def hangs_in_its_own_thread() -> None:
    await asyncio.to_thread(hang, mixed)


@mixed.task(name="hangs_as_task")
async def hangs_as_task() -> None:
    note(mixed.delivery, "inside")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@mixed.task(name="heeds")
def heeds() -> None:
    note(mixed.delivery, "inside")
    while not mixed.delivery.lost:
        time.sleep(0.01)
    time.sleep(0.2)
    note(mixed.delivery, "left")
