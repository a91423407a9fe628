"""How the handling of one delivery ended: what handlers raise, and what a worker makes of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from shardq.errors import ConfigError

MAX_TEXT: Final = 500
LONGEST: Final = 365 * 86_400.0


class Nack(Exception):
    """Raise it in a handler to give the message back, to be delivered again after *delay* seconds.

    Without a *delay* the worker's backoff decides. *error* is kept as the message's `last_error`. ConfigError for a
    delay that is none.
    """

    def __init__(self, delay: float | None = None, error: str = "") -> None:
        number = isinstance(delay, (int, float)) and not isinstance(delay, bool)
        if delay is not None and not (number and 0 <= delay <= LONGEST):
            raise ConfigError(f"delay must be a number of seconds from 0 to {LONGEST:g} or None, not {delay!r}")
        super().__init__(error)
        self.delay = delay
        self.error = error


class Reject(Exception):
    """Raise it in a handler to send the message to the dead letters, with *reason*."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HandlerFailed(Exception):
    """A handler failed in another process; the text is what `described` made of its error there."""


Verb = Literal["ack", "nack", "reject"]


class Outcome(NamedTuple):
    """What is to be said to Redis: `delay` in seconds (of a nack), `text` is the error or the reason."""

    verb: Verb
    delay: float = 0.0
    text: str = ""


ACK: Final = Outcome("ack")
GIVE_BACK: Final = Outcome("nack")
"""At once, and without a new error: nothing is wrong with the message."""


def outcome_of(error: BaseException, backoff: Callable[[], float]) -> Outcome:
    """What an exception of a handler means; *backoff* gives the seconds until the next try."""
    match error:
        case Nack():
            return Outcome("nack", backoff() if error.delay is None else float(error.delay), error.error)
        case Reject():
            return Outcome("reject", 0.0, str(error.reason) or "rejected")
    return Outcome("nack", backoff(), described(error))


def described(error: BaseException) -> str:
    """The type and message of *error* in one bounded line; a message that cannot be had is left out."""
    if isinstance(error, HandlerFailed):
        return str(error)[:MAX_TEXT]
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 (somebody else's __str__)
        text = ""
    return f"{type(error).__name__}: {text}"[:MAX_TEXT] if text else type(error).__name__
