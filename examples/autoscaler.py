"""An autoscaler: reads the queue's stats each second and prints how many workers there should be.

    python examples/autoscaler.py redis://localhost:6379 1 jobs

It wants one worker per `JOBS_PER_WORKER` jobs that are in flight or could run now, and more when the oldest of these
has waited longer than `PATIENCE` seconds. What a limit or a pause holds back would only make idle workers. It wants
none only when nothing could run or is in flight, because a busy worker must not be taken away.
"""

import json
import os
import signal
import sys
import time

from shardq import BackendError, Client, QueueMissing, QueueStats

JOBS_PER_WORKER, PATIENCE, MOST = 10, 5.0, 50  # seconds of waiting, workers

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SHARDQ_URL", "redis://localhost:6379")
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
name = sys.argv[3] if len(sys.argv) > 3 else "jobs"


def wanted(now: QueueStats) -> int:
    """How many workers there should be."""
    workers = -(-(now.runnable + now.in_flight) // JOBS_PER_WORKER)
    if now.oldest_age is not None and now.oldest_age > PATIENCE:
        workers = round(workers * now.oldest_age / PATIENCE)
    return min(workers, MOST)


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with Client.from_url(url, timeout=2) as client:
    jobs, now = client.queue(name), None
    while True:
        try:
            now = jobs.stats()
            decision = {
                "length": now.backlog + now.in_flight,  # what `jobs.len()` returns, of the same instant
                "runnable": now.runnable,
                "oldest_age": now.oldest_age,
                "delayed": now.delayed,
                "workers": wanted(now),
            }
            print(json.dumps(decision), flush=True)
        except (QueueMissing, BackendError) as error:
            if isinstance(error, QueueMissing) and now is None:  # a mistyped name is no empty queue
                sys.exit(f"autoscaler: {error}")
            print(error, file=sys.stderr)  # no numbers, no decision: leave the workers as they are
        time.sleep(pause)
