"""shardq: `python -m benchmarks.workers.shardq_jobs`, a loop by hand: a read, its jobs, an ack."""

from __future__ import annotations

import os

from benchmarks.workers.counting import URL, work
from shardq import Client

TOGETHER = 100
queue = Client.from_url(URL).queue("jobs")


def tenant(number: int) -> str:
    """Whose job it is: a hundred tenants in turn."""
    return f"tenant-{number % 100}"


def enqueue(payloads: list[str]) -> None:
    """One call each, or a hundred with each."""
    if os.environ.get("BENCH_WRITE") == "single":
        for number, payload in enumerate(payloads):
            queue.write(payload, shard_key=tenant(number))
        return
    for at in range(0, len(payloads), TOGETHER):
        some = payloads[at : at + TOGETHER]
        queue.write_many([(payload, tenant(at + number)) for number, payload in enumerate(some)])


def main() -> None:
    while True:
        found = queue.read_many(TOGETHER, block=1)
        for delivery in found:
            work(delivery.payload)
        if found:
            queue.ack_many(found)


if __name__ == "__main__":
    main()
