"""dramatiq: `dramatiq benchmarks.workers.dramatiq_jobs`."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.workers.counting import URL, work

dramatiq.set_broker(RedisBroker(url=URL))
job = dramatiq.actor(work, queue_name="jobs")


def enqueue(payloads: list[str]) -> None:
    """One call each."""
    for payload in payloads:
        job.send(payload)
