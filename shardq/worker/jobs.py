"""Steps that jobs of a worker need: to keep their results, to settle them, to look at time limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from shardq.client import Delivery, Queue
from shardq.client.leases import LeasedDelivery
from shardq.ops.queue.steps import Op
from shardq.ops.read.give_back import unread
from shardq.ops.results.keep import NO_RESULT, keep
from shardq.worker.crossing import Crossing
from shardq.worker.outcome import GIVE_BACK, Outcome
from shardq.worker.state import Job, SettleJobs
from shardq.worker.telling import Teller
from shardq.worker.trouble import CALL_TIMEOUT, dead_of


def keeping(jobs: Queue, acks: Sequence[Job]) -> Op[None] | None:
    """Return the operation that keeps the results of *acks*, which comes before these; None if they have none.

    The progress of those without one is forgotten.
    """
    outcomes = [(job.delivery, cast("Outcome", job.outcome).result) for job in acks]
    results = [
        (delivery.received, result or NO_RESULT)
        for delivery, result in outcomes
        if result is not None or cast("LeasedDelivery", delivery).has_told
    ]
    return keep(jobs.state, results, CALL_TIMEOUT) if results else None


def charge(jobs: Sequence[Job], now: float) -> None:
    """Note on the deliveries what their handlers took by *now*, which is what their shard keys are charged.

    So the wait for a handler costs nothing, nor does what no handler has started on.
    """
    for job in jobs:
        cast("LeasedDelivery", job.delivery).took = job.took(now)


def settle(jobs: Queue, action: SettleJobs, teller: Teller, crossing: Crossing | None) -> Sequence[Delivery]:
    """Settle the jobs of *action* in Redis, and tell of dead letters. Return the deliveries whose leases had ended."""
    charge(action.jobs, jobs.state.clock.monotonic())
    deliveries = [cast("Delivery", job.delivery) for job in action.jobs]
    outcomes = [cast("Outcome", job.outcome) for job in action.jobs]
    if action.verb == "ack":
        if (op := keeping(jobs, action.jobs)) is not None:
            jobs.client.run(op)
        return jobs.ack_many(deliveries, timeout=CALL_TIMEOUT)
    if action.verb == "give back":
        return _given_back(jobs, action.jobs)
    texts = [outcome.text for outcome in outcomes]
    if action.verb == "reject":
        late = jobs.reject_many(deliveries, texts, timeout=CALL_TIMEOUT)
    else:
        delays = [outcome.delay for outcome in outcomes]
        late = jobs.nack_many(deliveries, delay=delays, error=texts, timeout=CALL_TIMEOUT)
    teller.tell(dead_of(deliveries, outcomes), crossing)
    return late


def _given_back(jobs: Queue, given: Sequence[Job]) -> Sequence[Delivery]:
    """Give back at once what has the error that it had, and the others later or with a reason."""
    at_once = [job for job in given if job.outcome == GIVE_BACK]
    if at_once:
        jobs.client.run(unread(jobs.state, [job.delivery.received for job in at_once], CALL_TIMEOUT))
        for job in at_once:
            cast("LeasedDelivery", job.delivery)._note(lost=False)
    later = [job for job in given if job.outcome != GIVE_BACK]
    if not later:
        return ()
    deliveries = [cast("Delivery", job.delivery) for job in later]
    outcomes = [cast("Outcome", job.outcome) for job in later]
    delays, texts = [outcome.delay for outcome in outcomes], [outcome.text for outcome in outcomes]
    return jobs.nack_many(deliveries, delay=delays, error=texts, counted=False, timeout=CALL_TIMEOUT)


def next_look(job: Job, now: float) -> float | None:
    """Return when to look whether *job* has run for its limit, since it cannot have by *now*. None if it has.

    One that waits in a batch for others begins when that does.
    """
    end = (job.started or now) + (job.call.limit or 0.0)
    return end if end > now else None
