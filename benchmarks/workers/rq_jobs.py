"""RQ: `rq worker jobs`."""

from __future__ import annotations

from redis import Redis
from rq import Queue

from benchmarks.workers.counting import URL, work

TOGETHER = 100
queue = Queue("jobs", connection=Redis.from_url(URL))


def enqueue(payloads: list[str]) -> None:
    """A hundred with each call."""
    for at in range(0, len(payloads), TOGETHER):
        some = payloads[at : at + TOGETHER]
        queue.enqueue_many([Queue.prepare_data(work, args=(each,), result_ttl=0) for each in some])
