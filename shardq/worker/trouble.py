"""What both workers do after failures: pauses with jitter, one log line when a failure begins or ends, log texts."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TypeVar, cast

from shardq.arguments import MAX_BLOCK, seconds
from shardq.backoff import Backoff, Exponential
from shardq.client import Delivery
from shardq.errors import ClosedError, ConfigError, ServerUnfit
from shardq.model import DeliveryView
from shardq.worker.application import Application
from shardq.worker.outcome import Failed, GiveBack, Nack, Outcome, Reject, TimeLimit, described, outcome_of
from shardq.worker.plan import RETRY
from shardq.worker.state import Job, is_last

log = logging.getLogger("shardq")
FATAL = (ClosedError, ConfigError, ServerUnfit)
"""Errors that do not go away by waiting; `run` raises them."""
PAUSE = Exponential(base=0.05, cap=3.0)
RETURN_TIMEOUT = 5.0
"""Seconds that giving messages back may take at the end."""
CALL_TIMEOUT = 2.0
"""Seconds for which one call to Redis is retried before the worker logs a failure."""
D = TypeVar("D", bound=DeliveryView)
RANDOM = Random()  # only spreads retries, so it need not be secure


class Trouble:
    """Counts consecutive failures of one kind of call, and logs the first one and the end of them."""

    def __init__(self, queue: str, what: str) -> None:
        self._queue, self._what = queue, what
        self._failures = 0

    def failed(self, error: Exception) -> float:
        """Count a failure; seconds to wait before the next try."""
        self._failures += 1
        if self._failures == 1:
            log.warning(
                "queue %r: %s fails, and will be tried again until it works: %s", self._queue, self._what, error
            )
        return PAUSE(self._failures, RANDOM)

    def succeeded(self) -> None:
        """Reset the count, and log that the failures are over."""
        if self._failures:
            log.warning("queue %r: %s works again after %d failures", self._queue, self._what, self._failures)
            self._failures = 0


def dead_of(deliveries: Sequence[D], outcomes: Sequence[Outcome]) -> list[tuple[D, str]]:
    """The deliveries whose messages are dead letters now, with the reason. Each last failure is logged here, once."""
    found = []
    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        if delivery.dead:
            found.append((delivery, outcome.text))
            say(delivery, f"is a dead letter, after delivery {delivery.count}: {outcome.text}", outcome.error)
        elif outcome.verb == "reject" or outcome.error is not None:
            say(delivery, f"failed, delivery {delivery.count}, the last: {outcome.text}", outcome.error)
    return found


def say(delivery: DeliveryView, text: str, error: BaseException | None = None, *, level: int = logging.WARNING) -> None:
    """Log what became of a delivery, and of what: queue, tenant, task and message, which a log of JSON has apart."""
    queue, task = cast("Delivery", delivery).queue.name, delivery.task
    log.log(
        level, "queue %r, tenant %r,%s message %s: %s", queue, delivery.shard_key, f" task {task}," if task else "",
        delivery.message_id, text, exc_info=_traced(error) if error is not None else None,
        extra={
            "queue": queue, "tenant": delivery.shard_key, "task": task, "message_id": delivery.message_id,
            "delivery": delivery.count,
        },
    )  # fmt: skip


@contextmanager
def logged(what: str) -> Iterator[None]:
    """Log what a function of the user raises, and go on."""
    try:
        yield
    except Exception:
        log.exception("the worker's %s raised an error", what)


def delay_of(backoff: Backoff, count: int) -> float:
    """Seconds until the next delivery, by the user's backoff, or by the default one if that raises or is no time."""
    try:
        return seconds("the backoff's delay", backoff(count, RANDOM), 0, MAX_BLOCK)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (somebody else's function)
        why = described(error)
    log.error("the worker's backoff failed after delivery %d, and the default one is used: %s", count, why)
    return RETRY(count, RANDOM)


def judged(error: BaseException, delivery: DeliveryView, backoff: Backoff, most: int | None) -> Outcome:
    """The outcome for a handler's exception, logged without the payload; *most* is `max_deliveries` or None."""
    outcome = outcome_of(error, lambda: delay_of(backoff, delivery.count))
    if delivery.lost or isinstance(error, (Nack, Reject, GiveBack)):
        return outcome
    cause = error.error if isinstance(error, Failed) else error
    if outcome.verb == "reject" or is_last(delivery, most):
        return outcome._replace(error=cause)  # `dead_of` tells it with the dead letter
    say(delivery, f"failed, delivery {delivery.count}, again in {outcome.delay:.1f} s: {outcome.text}", cause)
    return outcome


def log_overrun(job: Job, limit: float, outcome: Outcome, most: int | None) -> None:
    """Log that a handler ran for more than *limit* seconds; *most* is `max_deliveries` or None."""
    delivery = job.delivery
    then = "the last" if outcome.verb == "reject" or is_last(delivery, most) else f"again in {outcome.delay:.1f} s"
    say(delivery, f"ran for more than {limit:g} s, delivery {delivery.count}, {then}")


def log_done(job: Job, outcome: Outcome) -> None:
    """Log that a handler has ended, for those who want to see each message."""
    delivery, took = job.delivery, max(0.0, job.ended - job.started)
    say(delivery, f"delivery {delivery.count} took {took:.3f} s: {outcome.verb}", level=logging.DEBUG)


def late_of(
    delivery: DeliveryView, limit: float, application: Application | None, backoff: Backoff
) -> tuple[TimeLimit, Outcome]:
    """Return the error of a handler that takes longer than *limit* seconds, and the outcome."""
    late = TimeLimit(f"it ran for more than {limit:g} s")
    error = late if application is None else application.judged(delivery, late)
    return late, outcome_of(error, lambda: delay_of(backoff, delivery.count))


def _traced(error: BaseException) -> BaseException | None:
    """*error* if the log shall show its traceback; None if not, or if the traceback cannot be encoded as UTF-8.

    A log handler that cannot encode a traceback would lose the whole line.
    """
    if isinstance(error, Nack) or getattr(error, "untraced", False):
        return None
    try:
        "".join(traceback.format_exception(error)).encode()
    except UnicodeEncodeError:
        return None
    return error


def log_lost(job: Job) -> None:
    """Log that a lease was lost."""
    say(job.delivery, f"its lease ended or it was cancelled; delivery {job.delivery.count} will not be settled")


def log_late(lost: Sequence[DeliveryView], verb: str) -> None:
    """Log that these deliveries could not be settled, because their leases had ended."""
    if lost:
        first = lost[0].message_id
        log.warning("%d leases had ended before their %s, the first of message %s", len(lost), verb, first)


def log_left(jobs: Sequence[Job]) -> None:
    """Log that the worker ends without having settled these."""
    if jobs:
        log.warning("%d messages could not be settled before the end; their leases end by themselves", len(jobs))


def raised(failure: BaseException | None) -> None:
    """Raise *failure*, if there is one."""
    if failure is not None:
        raise failure
