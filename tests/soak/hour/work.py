"""One process of the hour: it produces, reads, or runs a worker, on some queues, until SIGTERM.

python -m tests.soak.hour.work ROLE CLIENT_KIND URL FOLDER NAME SEED LEVEL QUEUE...
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardq import AsyncClient, AsyncWorker, Client, Worker
from shardq.backoff import Constant
from tests.clients import opened
from tests.soak.hour import handlers
from tests.soak.hour.notes import PATIENCE, Notes
from tests.soak.hour.producers import produce
from tests.soak.hour.readers import read

WORKING: Any = {"concurrency": 16, "backoff": Constant(handlers.BACKOFF), "visibility_timeout": 3.0, "grace": 10.0}
"""How workers work."""


@dataclass(frozen=True)
class Place:
    """Where a process works."""

    client_kind: Any
    url: str
    folder: Path
    name: str
    seed: int
    level: str
    queues: Sequence[str]


def threads(place: Place, work: Any) -> None:
    """A thread for each queue, with one client."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    failed: list[BaseException] = []

    def run(queue: Any, notes: Notes) -> None:
        try:
            work(queue, notes, place.seed, stop)
        except BaseException as error:
            failed.append(error)
            stop.set()
            raise

    with opened(place.client_kind, place.url, timeout=PATIENCE, durability=place.level) as client:
        each = [
            threading.Thread(target=run, args=(client.queue(queue, create=False), Notes(place.folder, name, queue)))
            for queue in place.queues
            if (name := f"{place.name}-{queue}")
        ]
        for thread in each:
            thread.start()
        for thread in each:
            thread.join()
    if failed:
        sys.exit(1)


def worker(place: Place) -> None:
    """A `Worker`, whose handlers run in threads."""
    with Client.from_url(place.url, timeout=PATIENCE) as client:
        queues = {client.queue(each, create=False): 1 for each in place.queues}
        Worker(queues, handlers.handle, **WORKING).run()


async def async_worker(place: Place) -> None:
    """An `AsyncWorker`."""
    async with AsyncClient.from_url(place.url, timeout=PATIENCE) as client:
        queues = {client.queue(each, create=False): 1 for each in place.queues}
        await AsyncWorker(queues, handlers.handle_async, **WORKING).run()


def main(role: str, client_kind: str, url: str, folder: str, name: str, seed: str, level: str, *queues: str) -> None:
    """Work until SIGTERM."""
    place = Place(client_kind, url, Path(folder), name, int(seed), level, queues)
    os.environ[handlers.FOLDER] = folder
    match role, client_kind:
        case "produce", _:
            threads(place, produce)
        case "read", _:
            threads(place, read)
        case "work", "sync":
            worker(place)
        case "work", _:
            asyncio.run(async_worker(place))


if __name__ == "__main__":
    main(*sys.argv[1:])
