"""A worker without `shardq.worker`: it reads jobs and does them until SIGTERM, then finishes the current one.

    python examples/worker.py redis://localhost:6379

Run as many as you like, on any machines. A job that fails is given back and delivered again later. A job that fails too
often goes to the dead letters. The job of a worker that was killed is delivered again when its lease ends.
"""

import os
import random
import signal
import sys
import time

from shardq import BackendError, Client, Delivery, Empty, LeaseLost, QueueMissing
from shardq.backoff import Exponential

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SHARDQ_URL", "redis://localhost:6379")
backoff = Exponential(base=0.2, cap=10)


def handle(tenant: str | bytes, job: dict[str, str]) -> None:
    """The work itself; it must be safe to do twice."""
    print(f"{tenant!s}: {job['prompt'].upper()}", flush=True)


def work_on(delivery: Delivery) -> None:
    """Do one job and settle it."""
    problem = None
    try:
        with delivery.processing():  # a tracing span, if tracing is set up
            handle(delivery.shard_key, delivery.payload)
    except Exception as error:  # noqa: BLE001 (whatever the work may raise)
        problem = error
    try:
        if problem is None:
            delivery.ack()
        else:
            delay, name = backoff(delivery.count, random.Random()), type(problem).__name__
            then = f"again in {delay:.1f} s" if delivery.nack(delay=delay, error=name) else "now a dead letter"
            print(f"attempt {delivery.count} failed, {then}: {problem!r}", file=sys.stderr)
    except LeaseLost as lost:  # it took too long and somebody else has it now, or it was cancelled
        print(lost, file=sys.stderr)


stopping: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
with Client.from_url(url) as client:
    jobs, failures = client.queue("jobs"), 0
    while not stopping:
        try:
            work_on(jobs.read(block=1))
            failures = 0
        except Empty:
            continue
        except (BackendError, QueueMissing) as error:  # what was not settled will be delivered again
            failures += 1
            print(error, file=sys.stderr)
            time.sleep(backoff(failures, random.Random()))
