"""A worker in a process of its own that looks at schedules five times a second: `python -m tests.tasks.ticking URL`."""

from __future__ import annotations

import sys

from shardq import Client, Worker
from shardq.worker import schedules
from tests.tasks.processes import ticks

if __name__ == "__main__":
    schedules.PERIOD = 0.2  # type: ignore[misc]
    with Client.from_url(sys.argv[1]) as client:
        Worker(client.queue(ticks), ticks, concurrency=4).run()
