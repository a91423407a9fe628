"""A worker's course after failures: pauses with jitter, one log line when a failure begins or ends, log texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar, cast

from shardq.backoff import Exponential
from shardq.client import Delivery
from shardq.errors import BackendError, ClosedError, ConfigError, OutcomeUnknown, QueueMissing, ServerUnfit
from shardq.model import DeliveryView
from shardq.worker.outcome import Outcome
from shardq.worker.state import WorkerJob, is_last

log = logging.getLogger("shardq")
FATAL_ERRORS = (ClosedError, ConfigError, ServerUnfit)
"""Errors that do not go away by waiting; `run` raises them."""
PAUSE = Exponential(base=0.05, cap=3.0)
RETURN_TIMEOUT = 5.0
"""Seconds that giving messages back may take at the end."""
CALL_TIMEOUT = 2.0
"""Seconds for which one call to Redis is retried before the worker logs a failure."""
D = TypeVar("D", bound=DeliveryView)
RANDOM = Random()  # only spreads retries, so it need not be secure


class Trouble:
    """Counts consecutive *failures* of one kind of call, and logs the first one and the end of them.

    Two sentences say that something *cannot* be done, and that it *can* be done again.
    """

    def __init__(self, cannot: str, can: str) -> None:
        self._cannot, self._can = cannot, can
        self.failures = 0
        self._is_missing = False

    def failed(self, error: Exception) -> float:
        """Count a failure; seconds to wait before the next try."""
        self.failures += 1
        # Redis may be back without the queue: then somebody has to make it.
        is_missing = isinstance(error, QueueMissing)
        if self.failures == 1 or is_missing != self._is_missing:
            log.warning("%s, and the worker tries again until it can: %s", self._cannot, _cause_of(error))
        self._is_missing = is_missing
        return PAUSE(self.failures, RANDOM)

    def succeeded(self) -> None:
        """Reset the count, and log that the failures are over."""
        if self.failures:
            tries = "1 try" if self.failures == 1 else f"{self.failures} tries"
            log.warning("%s, after %s that failed", self._can, tries)
            self.failures = 0


def _cause_of(error: Exception) -> BaseException:
    """Return what to tell: not that a read may have happened, which nobody can do anything about, but why."""
    cause = error.__cause__
    return cause if isinstance(error, OutcomeUnknown) and isinstance(cause, BackendError) else error


def dead_of(deliveries: Sequence[D], outcomes: Sequence[Outcome]) -> list[tuple[D, str]]:
    """The deliveries whose messages are dead letters now, with the reason. Each last failure is logged here, once."""
    found = []
    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        if delivery.dead:
            found.append((delivery, outcome.text))
            say(delivery, f"is a dead letter, after delivery {delivery.count}: {outcome.text}", outcome.trace)
        elif outcome.verb == "reject" or outcome.is_last_error:
            say(delivery, f"failed, delivery {delivery.count}, the last: {outcome.text}", outcome.trace)
    return found


def say(delivery: DeliveryView, text: str, trace: str = "", *, level: int = logging.WARNING) -> None:
    """Log what became of a delivery, and of what: queue, tenant, task and message, which a log of JSON has apart."""
    queue, task = cast("Delivery", delivery).queue.name, delivery.task
    note(
        level, "queue %r, tenant %r,%s message %s: %s", queue, delivery.shard_key, f" task {task}," if task else "",
        delivery.message_id, text, trace=trace,
        extra={
            "queue": queue, "tenant": delivery.shard_key, "task": task, "message_id": delivery.message_id,
            "delivery": delivery.count,
        },
    )  # fmt: skip


def note(level: int, text: str, *args: object, trace: str = "", extra: Mapping[str, object] | None = None) -> None:
    """Log a line with a traceback that is a text by now: handlers of logs would look at the error once more."""
    if log.isEnabledFor(level):
        file, line, function, _ = log.findCaller(stacklevel=2)
        record = log.makeRecord(log.name, level, file, line, text, args, None, function, extra)
        record.exc_text = trace or None
        log.handle(record)


def log_overrun(job: WorkerJob, outcome: Outcome, most: int | None) -> None:
    """Log that a handler ran for longer than its limit; *most* is `max_deliveries` or None."""
    delivery = job.delivery
    then = "the last" if outcome.verb == "reject" or is_last(delivery, most) else f"again in {outcome.delay:.1f} s"
    say(delivery, f"ran for more than {job.call.limit:g} s, delivery {delivery.count}, {then}")


def log_done(job: WorkerJob, outcome: Outcome) -> None:
    """Log that a handler has ended, for those who want to see each message."""
    delivery, took = job.delivery, max(0.0, job.ended - job.started)
    say(delivery, f"delivery {delivery.count} took {took:.3f} s: {outcome.verb}", level=logging.DEBUG)


def log_lost(job: WorkerJob) -> None:
    """Log that a lease was lost."""
    say(job.delivery, f"its lease ended or it was cancelled; delivery {job.delivery.count} will not be settled")


def log_late(lost: Sequence[DeliveryView], verb: str) -> None:
    """Log that these deliveries could not be settled, because their leases had ended."""
    if lost:
        first = lost[0].message_id
        log.warning("%d leases had ended before their %s, the first of message %s", len(lost), verb, first)


def log_left(jobs: Sequence[WorkerJob]) -> None:
    """Log that the worker ends without having settled these."""
    if jobs:
        log.warning("%d messages could not be settled before the end; their leases end by themselves", len(jobs))


def raised(failure: BaseException | None) -> None:
    """Raise *failure*, if there is one."""
    if failure is not None:
        raise failure
