"""How the handling of one delivery ended: what handlers raise, and the settling that follows. Has no side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeGuard

from shardq.arguments import MAX_BLOCK, shown
from shardq.errors import ConfigError
from shardq.model.failed import FailedTry, class_of, described, frames_of, is_a, reason_of, text_of
from shardq.model.failure import FailureReason
from shardq.protocol.results import KeptResult


class Nack(Exception):
    """Raise it in a handler to give the message back, to be delivered again after *delay* seconds.

    Without a *delay* the worker's backoff decides. *error* is stored as the message's `last_error`. ConfigError for an
    invalid delay.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", create=True)
    >>> message_id = queue.write("hello", shard_key="acme")
    >>> def handle(delivery):
    ...     worker.stop()
    ...     raise Nack(delay=60, error="the printer is busy")
    >>> worker = Worker(queue, handle)
    >>> worker.run()
    >>> queue.status(message_id).last_error
    'the printer is busy'
    """

    def __init__(self, delay: float | None = None, error: str = "") -> None:
        if delay is not None and not is_delay(delay):
            raise ConfigError(f"delay must be a number of seconds from 0 to {MAX_BLOCK:g} or None, not {shown(delay)}")
        super().__init__(error)
        self.delay = delay
        self.error = error


class Reject(Exception):
    """Raise it in a handler to send the message to the dead letters, with *reason*.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", create=True)
    >>> message_id = queue.write("hello", shard_key="acme")
    >>> def handle(delivery):
    ...     worker.stop()
    ...     raise Reject("unknown format")
    >>> worker = Worker(queue, handle)
    >>> worker.run()
    >>> [each.reason for each in queue.dead()]
    ['unknown format']
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_FAILED: Final = "_failed"


def unfit(reason: str, failure: FailureReason, error_type: str = "") -> Reject:
    """Return a Reject of what can never be done: *failure* says how a try of it fails, *error_type* with what class."""
    error = Reject(reason)
    setattr(error, _FAILED, FailedTry("", error_type, failure))
    return error


class GiveBack(Exception):
    """Raise it in a handler that cannot do this message here and now: another worker, or a later release, shall.

    It is delivered again after *delay* seconds, and this delivery does not count. *failure* says how it fails.
    """

    def __init__(self, delay: float, reason: str, failure: FailureReason = "retry") -> None:
        super().__init__(reason)
        self.delay, self.reason, self.failure = delay, reason, failure


class Failed(Exception):
    """The decision of an `Application` about an error of its own handler: when it is tried again, if at all.

    `delay` is in seconds; None leaves it to the worker's backoff. `text` is what is stored of the error.
    """

    def __init__(self, error: BaseException, delay: float | None, text: str, *, gives_up: bool) -> None:
        super().__init__(text)
        self.error, self.delay, self.text, self.gives_up = error, delay, text, gives_up


class TimeLimit(TimeoutError):
    """A handler takes longer than its time limit; what it failed with, for an error reporter and as a last error.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_deliveries=2)
    >>> message_id = queue.write("hello", shard_key="acme")
    >>> delivery = queue.read()
    >>> delivery.nack(error=TimeLimit("took longer than 30 s"))
    True
    >>> queue.status(message_id).error_type
    'TimeLimit'
    """


class HandlerFailed(Exception):
    """A handler failed in another process; *failed* describes its error there."""

    def __init__(self, failed: FailedTry) -> None:
        super().__init__(failed.text)
        self.failed = failed


def is_delay(value: object) -> TypeGuard[float]:
    """Whether *value* is a number of seconds for which a message may be delayed."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_BLOCK


Verb = Literal["ack", "nack", "reject", "give back"]


class Outcome(NamedTuple):
    """How to settle a delivery. `delay` is that of a nack, in seconds; `text` is the error or the reason.

    To give it back is a nack after which this delivery does not count.

    `result` is what is kept of what the handler returned; None if the queue keeps no results.
    """

    verb: Verb
    delay: float = 0.0
    text: str = ""
    result: KeptResult | None = None
    is_last_error: bool = False
    """Whether it is the error of the last try, which the dead letter shows."""
    trace: str = ""
    """The traceback of that error."""
    error_type: str = ""
    reason: FailureReason | str = ""
    frames: str = ""
    """These are as in `FailedTry`."""

    @property
    def failed(self) -> FailedTry:
        """Return the report of the try."""
        return FailedTry(self.text, self.error_type, self.reason, self.frames)


ACK: Final = Outcome("ack")
GIVE_BACK: Final = Outcome("give back")
"""The outcome for a message with nothing wrong."""


def outcome_of(error: BaseException, backoff: Callable[[], float]) -> Outcome:
    """The outcome that an exception of a handler means; *backoff* returns the seconds until the next delivery."""
    return _told(_decided(error, backoff), error)


def _decided(error: BaseException, backoff: Callable[[], float]) -> Outcome:
    if is_a(error, Nack):
        delay = _of(error, "delay")
        return Outcome("nack", float(delay) if is_delay(delay) else backoff(), text_of(_of(error, "error")))
    if is_a(error, Reject):
        return Outcome("reject", 0.0, text_of(_of(error, "reason")) or "rejected")
    if is_a(error, GiveBack):
        return Outcome("give back", error.delay, text_of(error.reason))
    if is_a(error, Failed):
        if error.gives_up:
            return Outcome("reject", 0.0, error.text)
        return Outcome("nack", backoff() if error.delay is None else error.delay, error.text)
    return Outcome("nack", backoff(), described(error))


def _told(outcome: Outcome, error: BaseException) -> Outcome:
    """Return *outcome* with the report of its *error*: how the try failed, with what, and where."""
    found = failure_of(error)
    return outcome._replace(error_type=found.error_type, reason=found.reason, frames=found.frames)


def failure_of(error: BaseException) -> FailedTry:
    """The report of an *error*, but for its text."""
    kind = type(error)
    if kind is Reject:
        failed = vars(error).get(_FAILED)
        return failed if type(failed) is FailedTry else FailedTry()
    if kind is GiveBack:
        return FailedTry("", "", "" if error.failure == "retry" else error.failure)  # type: ignore[attr-defined]
    if kind is Failed:
        found = failure_of(error.error)  # type: ignore[attr-defined]
        gives_up = error.gives_up and not found.reason  # type: ignore[attr-defined]
        return FailedTry("", found.error_type, "dead" if gives_up else found.reason, found.frames)
    if kind is HandlerFailed:
        return error.failed  # type: ignore[attr-defined,no-any-return]
    if kind is Nack:  # it names no error: a class that is made of it does
        return FailedTry()
    reason = "time limit" if kind is TimeLimit else reason_of(error)
    return FailedTry("", class_of(error), reason, "" if is_a(error, (Nack, TimeLimit)) else frames_of(error))


def _of(error: BaseException, name: str) -> object:
    """The attribute *name* of *error*, or None if it is missing or raises, as may be in a subclass."""
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 (somebody else's property)
        return None
