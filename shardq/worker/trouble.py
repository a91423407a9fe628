"""What both workers do after failures: pauses with jitter, one log line when a failure begins or ends, log texts."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from shardq.arguments import MAX_BLOCK, seconds
from shardq.backoff import Backoff, Exponential
from shardq.errors import ClosedError, ConfigError, ServerUnfit
from shardq.model import DeliveryView
from shardq.worker.outcome import Nack, Outcome, Reject, described, outcome_of
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


def dead_of(queue: str, deliveries: Sequence[D], texts: Sequence[str]) -> list[tuple[D, str]]:
    """The deliveries whose messages are dead letters now, each logged, with the reason."""
    found = [(delivery, text) for delivery, text in zip(deliveries, texts, strict=True) if delivery.dead]
    for delivery, text in found:
        log.warning(
            "queue %r: message %s of tenant %r is a dead letter, after delivery %d: %s",
            queue, delivery.message_id, delivery.shard_key, delivery.count, text,
        )  # fmt: skip
    return found


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
    if delivery.lost:
        return outcome
    if isinstance(error, Reject):
        log.warning(
            "message %s rejected, delivery %d, to the dead letters: %s",
            delivery.message_id, delivery.count, outcome.text,
        )  # fmt: skip
    elif not isinstance(error, Nack) or is_last(delivery, most):
        log.warning(
            "message %s failed, delivery %d, %s: %s",
            delivery.message_id, delivery.count, _next_step(delivery, most, outcome.delay), outcome.text,
            exc_info=_traced(error),
        )  # fmt: skip
    return outcome


def overran(job: Job, limit: float, backoff: Backoff, most: int | None) -> Outcome:
    """The outcome for a handler that took too long, which is logged; *most* is `max_deliveries` or None."""
    delivery = job.delivery
    outcome = Outcome("nack", delay_of(backoff, delivery.count), f"TimeLimit: it ran for more than {limit:g} s")
    log.warning(
        "message %s ran for more than %g s, delivery %d, %s",
        delivery.message_id, limit, delivery.count, _next_step(delivery, most, outcome.delay),
    )  # fmt: skip
    return outcome


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


def _next_step(delivery: DeliveryView, most: int | None, delay: float) -> str:
    """What happens next to a message that is given back with *delay*, as text for the log."""
    return "the last: to the dead letters" if is_last(delivery, most) else f"again in {delay:.1f} s"


def log_lost(job: Job) -> None:
    """Log that a lease was lost."""
    delivery = job.delivery
    log.warning(
        "message %s: its lease ended or it was cancelled; delivery %d will not be settled",
        delivery.message_id, delivery.count,
    )  # fmt: skip


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
