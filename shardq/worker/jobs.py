"""Steps that jobs of a worker need: to run within a span, to keep their results, to settle them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from shardq.client import Delivery, Queue
from shardq.client.work import measured
from shardq.errors import BackendError
from shardq.model import Received
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.read.give_back import unread
from shardq.ops.results.keep import NO_RESULT, keep
from shardq.ops.settle.settle import Results, Settled, ack
from shardq.partitions.late import PATIENCE
from shardq.partitions.parts import Parts, numbers_of
from shardq.protocol.results import KeptResult
from shardq.worker.crossing import Crossing
from shardq.worker.outcome import GIVE_BACK, Outcome
from shardq.worker.state import SettleJobs, WorkerJob
from shardq.worker.telling import Teller
from shardq.worker.trouble import CALL_TIMEOUT, dead_of

if TYPE_CHECKING:
    from shardq.client.parted import PartedQueue


def in_span(job: WorkerJob) -> object:
    """Make a job's call, which is plain, within a tracing span."""
    with _span(job):
        return job.call.run(job)


async def in_span_async(job: WorkerJob) -> object:
    """Do as `in_span`, for an async call."""
    with _span(job):
        return await job.call.run(job)


def _span(job: WorkerJob) -> AbstractContextManager[object]:
    return cast("Delivery", job.delivery).queue._telemetry.working(job.delivery.received)


def deliveries_of(jobs: Sequence[WorkerJob]) -> list[Delivery]:
    """Return what the worker holds of *jobs*."""
    return cast("list[Delivery]", [job.delivery for job in jobs])


def outcomes_of(jobs: Sequence[WorkerJob]) -> list[Outcome]:
    """Return what was decided of *jobs*."""
    return cast("list[Outcome]", [job.outcome for job in jobs])


def keeping(jobs: Queue, acks: Sequence[WorkerJob]) -> Op[Sequence[WorkerJob]] | None:
    """Return the operation that keeps the results of *acks*, which comes before these; None if there is nothing to do.

    It returns those that the next read may ack. In a queue with partitions it leaves out those of a partition that does
    not answer: they go out by themselves, since that read is for the others, too.
    """
    parts, kept = jobs.state.parts, _results_of(acks)
    if parts is not None and (kept or parts.away.numbers):
        return _kept_in_parts(parts, acks)
    return _kept(jobs.state, kept, acks) if kept else None


def _kept(
    state: QueueState, kept: Sequence[tuple[Received, KeptResult]], acks: Sequence[WorkerJob]
) -> Op[Sequence[WorkerJob]]:
    yield from keep(state, kept, CALL_TIMEOUT)
    return acks


def _kept_in_parts(parts: Parts, acks: Sequence[WorkerJob]) -> Op[Sequence[WorkerJob]]:
    away = parts.away.numbers if len(parts.away.numbers) < len(parts.states) else ()
    here = [job for job, number in zip(acks, numbers_of(deliveries_of(acks)), strict=True) if number not in away]

    def each(state: QueueState, every: Sequence[int]) -> Op[list[bool]]:
        kept = _results_of([here[at] for at in every])
        failed = (yield from outcome_of(keep(state, kept, PATIENCE))) if kept else None
        if failed is not None and not isinstance(failed, BackendError):
            raise failed
        return [failed is None] * len(every)

    are_kept = yield from parts.in_each(numbers_of(deliveries_of(here)), each)
    return [job for job, is_kept in zip(here, are_kept, strict=True) if is_kept]


def _results_of(acks: Sequence[WorkerJob]) -> list[tuple[Received, KeptResult]]:
    """Return what is to be kept of these jobs. The progress of those without a result is forgotten."""
    return [
        (delivery.received, outcome.result or NO_RESULT)
        for delivery, outcome in zip(deliveries_of(acks), outcomes_of(acks), strict=True)
        if outcome.result is not None or delivery.has_told
    ]


def unread_all(jobs: Queue, deliveries: Sequence[Delivery]) -> Op[None]:
    """Give back at once what no handler has worked on, without counting the delivery."""
    return in_parts(
        jobs, deliveries, lambda state, every: unread(state, [deliveries[at].received for at in every], CALL_TIMEOUT)
    )


def in_parts(
    jobs: Queue, deliveries: Sequence[Delivery], op: Callable[[QueueState, Sequence[int]], Op[None]]
) -> Op[None]:
    """Run *op* on the queue, for the deliveries at some indexes: for all, or of each partition for those of it."""
    if jobs.state.parts is None:
        yield from op(jobs.state, range(len(deliveries)))
        return

    def each(state: QueueState, every: Sequence[int]) -> Op[list[None]]:
        yield from op(state, every)
        return [None] * len(every)

    yield from jobs.state.parts.in_each(numbers_of(deliveries), each)


def charge(jobs: Sequence[WorkerJob], now: float) -> None:
    """Note on the deliveries what their handlers took by *now*, which is what their shard keys are charged.

    So the wait for a handler costs nothing, nor does what no handler has started on.
    """
    for job, delivery in zip(jobs, deliveries_of(jobs), strict=True):
        delivery.took = job.took(now)
        if job.charged or job.members > 1:
            delivery.besides = (job.charged + delivery.took) / job.members - delivery.took


def settle(jobs: Queue, action: SettleJobs, teller: Teller, crossing: Crossing | None) -> Sequence[Delivery]:
    """Settle the jobs of *action* in Redis, and tell of dead letters. Return the deliveries whose leases had ended."""
    charge(action.jobs, jobs.state.clock.monotonic())
    deliveries = deliveries_of(action.jobs)
    if action.verb == "ack":
        if jobs.state.parts is not None:
            return _acked_in_parts(cast("PartedQueue", jobs), action.jobs)
        if kept := _results_of(action.jobs):
            jobs.client.run(keep(jobs.state, kept, CALL_TIMEOUT))
        return jobs.ack_many(deliveries, timeout=CALL_TIMEOUT)
    if action.verb == "give back":
        return _given_back(jobs, action.jobs)
    outcomes = outcomes_of(action.jobs)
    tries = [outcome.failed for outcome in outcomes]
    if action.verb == "reject":
        late = jobs.reject_many(deliveries, tries, timeout=CALL_TIMEOUT)
    else:
        delays = [outcome.delay for outcome in outcomes]
        late = jobs.nack_many(deliveries, delay=delays, error=tries, timeout=CALL_TIMEOUT)
    teller.tell(dead_of(deliveries, outcomes), crossing)
    return late


def _acked_in_parts(queue: PartedQueue, jobs: Sequence[WorkerJob]) -> Sequence[Delivery]:
    """Keep the results in each partition, and ack there: if one takes none, the others' are acked anyway."""
    deliveries = deliveries_of(jobs)
    received = measured(deliveries)

    def each(state: QueueState, every: Sequence[int], found: Results) -> Op[list[Settled]]:
        if kept := _results_of([jobs[at] for at in every]):
            yield from keep(state, kept, CALL_TIMEOUT)
        return (yield from ack(state, [received[at] for at in every], CALL_TIMEOUT, found))

    return cast("Sequence[Delivery]", queue._settled("ack", deliveries, received, CALL_TIMEOUT, each))


def _given_back(jobs: Queue, given: Sequence[WorkerJob]) -> Sequence[Delivery]:
    """Give back at once what has the error that it had, and the others later or with a reason."""
    at_once = [job for job in given if job.outcome == GIVE_BACK]
    if at_once:
        jobs.client.run(unread_all(jobs, deliveries_of(at_once)))
        for delivery in deliveries_of(at_once):
            delivery._note(lost=False)
    later = [job for job in given if job.outcome != GIVE_BACK]
    if not later:
        return ()
    deliveries, outcomes = deliveries_of(later), outcomes_of(later)
    delays, tries = [outcome.delay for outcome in outcomes], [outcome.failed for outcome in outcomes]
    return jobs.nack_many(deliveries, delay=delays, error=tries, counted=False, timeout=CALL_TIMEOUT)
