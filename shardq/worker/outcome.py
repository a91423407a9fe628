"""How the handling of one delivery ended: what handlers raise, and the settling that follows. Has no side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeGuard, TypeVar

from shardq.arguments import MAX_BLOCK, shown
from shardq.errors import ConfigError
from shardq.protocol.results import KeptResult

MAX_TEXT: Final = 500
E = TypeVar("E", bound=BaseException)
_NAME: Final = type.__dict__["__name__"].__get__
"""Gives the name of a class, by no code of its metaclass."""


class Nack(Exception):
    """Raise it in a handler to give the message back, to be delivered again after *delay* seconds.

    Without a *delay* the worker's backoff decides. *error* is stored as the message's `last_error`. ConfigError for an
    invalid delay.
    """

    def __init__(self, delay: float | None = None, error: str = "") -> None:
        if delay is not None and not is_delay(delay):
            raise ConfigError(f"delay must be a number of seconds from 0 to {MAX_BLOCK:g} or None, not {shown(delay)}")
        super().__init__(error)
        self.delay = delay
        self.error = error


class Reject(Exception):
    """Raise it in a handler to send the message to the dead letters, with *reason*."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GiveBack(Exception):
    """Raise it in a handler that cannot do this message here and now: another worker, or a later release, shall.

    It is delivered again after *delay* seconds, and this delivery does not count.
    """

    def __init__(self, delay: float, reason: str) -> None:
        super().__init__(reason)
        self.delay, self.reason = delay, reason


class Failed(Exception):
    """What an `Application` makes of an error of its own handler: when it is tried again, and whether it is at all.

    `delay` is in seconds; None leaves it to the worker's backoff. `text` is what is stored of the error.
    """

    def __init__(self, error: BaseException, delay: float | None, text: str, *, gives_up: bool) -> None:
        super().__init__(text)
        self.error, self.delay, self.text, self.gives_up = error, delay, text, gives_up


class TimeLimit(TimeoutError):
    """A handler takes longer than its time limit; what it failed with, for an error reporter and as a last error."""


class HandlerFailed(Exception):
    """A handler failed in another process; the text is what `described` made of its error there."""


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
    """Whether it is the error of the last try, which is told with the dead letter."""
    trace: str = ""
    """The traceback of that error."""


ACK: Final = Outcome("ack")
GIVE_BACK: Final = Outcome("give back")
"""What is done with a message of which nothing is wrong."""


def outcome_of(error: BaseException, backoff: Callable[[], float]) -> Outcome:
    """The outcome that an exception of a handler means; *backoff* returns the seconds until the next delivery."""
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


def is_a(error: BaseException, kinds: type[E] | tuple[type[E], ...]) -> TypeGuard[E]:
    """Whether *error* is of one of these classes of shardq's. Unlike `isinstance`, it calls no code of the error."""
    return issubclass(type(error), kinds)


def described(error: BaseException) -> str:
    """The type and message of *error* in one bounded line, without the message if `str(error)` fails."""
    text, name = text_of(error), name_of(error)
    return f"{name}: {text}"[:MAX_TEXT] if text else name


def name_of(error: BaseException) -> str:
    """The name of the class of *error*."""
    return text_of(_NAME(type(error)))


def text_of(value: object) -> str:
    """*value* as one bounded line of text that can be encoded as UTF-8; '' for None or if `str(value)` fails.

    Handlers raise anything: their text may have a lone surrogate, which UTF-8 cannot encode, and `__str__` may fail.
    """
    try:
        text = "" if value is None else str(value)
        line = " ".join(text[: 8 * MAX_TEXT].split())
    except BaseException:  # noqa: BLE001 (somebody else's __str__, or class of texts)
        return ""
    return line[:MAX_TEXT].encode(errors="replace").decode()


def _of(error: BaseException, name: str) -> object:
    """The attribute *name* of *error*, or None if it is missing or raises, as may be in a subclass."""
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 (somebody else's property)
        return None
