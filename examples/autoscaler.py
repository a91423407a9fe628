"""An autoscaler: looks at a queue each second and prints how many workers there should be.

    python examples/autoscaler.py redis://localhost:6379 1 jobs

It goes by the policy of `shardq serve scaler` (docs/autoscaling.md), for those who have no KEDA: one worker per
`JOBS_PER_WORKER` jobs that are in flight or could run now, and one if a delayed job is due within `LEAD` seconds. What
a limit or a pause holds back would only make idle workers. It wants none only when nothing is in flight, because a
busy worker must not be taken away.
"""

import json
import os
import signal
import sys
import time

from shardq import BackendError, Client, QueueMissing
from shardq.exporter.policy import Policy, numbers_of

JOBS_PER_WORKER, LEAD, MOST = 10, 30.0, 50  # seconds, workers

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SHARDQ_URL", "redis://localhost:6379")
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
name = sys.argv[3] if len(sys.argv) > 3 else "jobs"
policy = Policy("load", JOBS_PER_WORKER, LEAD)

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
                "workers": policy.wanted(numbers_of(now, None), most=MOST),
            }
            print(json.dumps(decision), flush=True)
        except (QueueMissing, BackendError) as error:
            if isinstance(error, QueueMissing) and now is None:  # a mistyped name is no empty queue
                sys.exit(f"autoscaler: {error}")
            print(error, file=sys.stderr)  # no numbers, no decision: leave the workers as they are
        time.sleep(pause)
