"""shardq: `python -m benchmarks.workers.shardq_jobs threads`, `asyncio`, or `hand`: read, run, ack, by a loop."""

from __future__ import annotations

import asyncio
import os
import sys

from benchmarks.workers.counting import URL, work, work_async
from shardq import AsyncClient, AsyncDelivery, AsyncQueue, Client, Delivery
from shardq.worker import AsyncWorker, Worker

TOGETHER = 100
AHEAD = int(os.environ.get("BENCH_AHEAD", "500"))
TENANTS = int(os.environ.get("BENCH_TENANTS", "100"))
LEASE = float(os.environ.get("BENCH_LEASE", "30"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "64"))
queue = Client.from_url(URL).queue("jobs", visibility_timeout=LEASE)


def tenant(number: int) -> str:
    """The tenant of a job: one of all, one after the other."""
    return f"tenant-{number % TENANTS}"


def enqueue(payloads: list[str]) -> None:
    """One call each, one by one or a hundred at a time, or a hundred jobs with each."""
    if os.environ.get("BENCH_WRITE") == "gather":
        _runner.run(_gathered(payloads))
        return
    if os.environ.get("BENCH_WRITE") == "single":
        for number, payload in enumerate(payloads):
            queue.write(payload, shard_key=tenant(number))
        return
    for at in range(0, len(payloads), TOGETHER):
        some = payloads[at : at + TOGETHER]
        queue.write_many([(payload, tenant(at + number)) for number, payload in enumerate(some)])


async def _gathered(payloads: list[str]) -> None:
    global _queue
    _queue = _queue or AsyncClient.from_url(URL).queue("jobs", visibility_timeout=LEASE)
    for at in range(0, len(payloads), TOGETHER):
        some = enumerate(payloads[at : at + TOGETHER])
        await asyncio.gather(*(_queue.write(payload, shard_key=tenant(at + number)) for number, payload in some))


_runner = asyncio.Runner()
_queue: AsyncQueue | None = None


def by_hand() -> None:
    while True:
        found = queue.read_many(TOGETHER, block=1)
        for delivery in found:
            work(delivery.payload)
        if found:
            queue.ack_many(found)


def in_threads() -> None:
    def handle(delivery: Delivery) -> None:
        work(delivery.payload)

    Worker(queue, handle, concurrency=SLOTS, read_ahead=AHEAD).run()


async def in_tasks() -> None:
    async def handle(delivery: AsyncDelivery) -> None:
        await work_async(delivery.payload)

    async with AsyncClient.from_url(URL) as client:
        await AsyncWorker(client.queue("jobs", create=True), handle, concurrency=SLOTS, read_ahead=AHEAD).run()


def main(how: str) -> None:
    if how == "asyncio":
        asyncio.run(in_tasks())
    else:
        {"threads": in_threads, "hand": by_hand}[how]()


if __name__ == "__main__":
    main(sys.argv[1])
