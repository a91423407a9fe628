"""How a worker with threads settles its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from shardq.client import Delivery, Queue
from shardq.worker.outcome import Outcome
from shardq.worker.plan import OnDead
from shardq.worker.state import Settle
from shardq.worker.trouble import CALL_TIMEOUT, dead_of, logged


def settle(jobs: Queue, action: Settle, on_dead: OnDead | None) -> Sequence[Delivery]:
    """Settle the jobs of *action* in Redis, and tell of dead letters. Return the deliveries whose leases had ended."""
    deliveries = [cast("Delivery", job.delivery) for job in action.jobs]
    outcomes = [cast("Outcome", job.outcome) for job in action.jobs]
    if action.verb == "ack":
        return jobs.ack_many(deliveries, timeout=CALL_TIMEOUT)
    texts = [outcome.text for outcome in outcomes]
    if action.verb == "reject":
        late = jobs.reject_many(deliveries, texts, timeout=CALL_TIMEOUT)
    else:
        delays = [outcome.delay for outcome in outcomes]
        late = jobs.nack_many(deliveries, delay=delays, error=texts, timeout=CALL_TIMEOUT)
    for delivery, text in dead_of(jobs.name, deliveries, texts):
        if on_dead is not None:
            with logged("on_dead"):
                on_dead(delivery, text)
    return late
