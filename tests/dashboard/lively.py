"""A lively queue: tenants that come and go, jobs that fail now and then, and numbers that are others each moment."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shardq import Client, Limits
from shardq.tasks import Tasks
from tests.dashboard.scenery import working

QUEUE: Final = "orders"
TENANTS: Final = tuple(f"{name}-{kind}" for name in ("fern", "slate", "quill", "wren") for kind in ("retail", "labs"))
LARGE: Final = "lumen-labs"


@contextmanager
def lively(client: Client) -> Iterator[None]:
    """Work comes and goes for the time of a `with`: now much, now little, of a few tenants or of many."""
    tasks: Tasks[None] = Tasks(QUEUE, streams=4)

    @tasks.task(name="orders.pack", retries=3)
    def pack(number: int) -> None:
        time.sleep(0.005)
        if number % 23 == 0:
            raise TimeoutError("no answer from the warehouse")

    @tasks.task(name="orders.bill")
    def bill(number: int) -> None:
        time.sleep(0.01)

    queue, ends = client.queue(tasks), threading.Event()
    queue.declare()
    queue.set_limits({TENANTS[0]: Limits(rate=5)})

    def write() -> None:
        rng, number = random.Random(7), 0
        while not ends.wait(rng.choice((0.02, 0.1, 0.4))):
            whose = rng.sample((*TENANTS, LARGE), rng.randrange(1, 6)) + [LARGE] * rng.choice((0, 0, 60))
            calls = []
            for key in whose:
                number += 1
                calls.append((rng.choice((pack, bill)).call(number), key))
            queue.write_many(calls)
            queue.write(bill.call(number), shard_key=rng.choice(TENANTS), delay=rng.choice((0.5, 2.0)))

    writer = threading.Thread(target=write)
    with working(client, tasks, concurrency=6):
        writer.start()
        try:
            yield
        finally:
            ends.set()
            writer.join()
