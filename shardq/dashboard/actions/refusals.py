"""Why an action is not done, in a sentence for the person; and errors of the library as such sentences."""

from __future__ import annotations

from typing import Final

from shardq.errors import (
    BackendError,
    BackendTimeout,
    ClosedError,
    ConfigError,
    MessageNotFound,
    OutcomeUnknown,
    OutOfMemory,
    PartlyDone,
    QueueFull,
    QueueMissing,
    ScheduleNotFound,
    ShardqError,
)

MAX_TEXT: Final = 600
"""Letters of an error that a person reads."""

BAD: Final = 400
FORBIDDEN: Final = 403
GONE: Final = 404
CHANGED: Final = 409
TOO_LARGE: Final = 413
AWAY: Final = 503


class Refused(Exception):
    """An action is not done. `text` says why, and what to do; `status` is that of the answer."""

    def __init__(self, text: str, status: int = BAD) -> None:
        super().__init__(text)
        self.text, self.status = text, status


def refusal_of(error: ShardqError) -> Refused:
    """Return what a person is told of an error of the library."""
    text = sentence(str(error))
    match error:
        case QueueMissing() | ScheduleNotFound():
            return Refused(text, GONE)
        case MessageNotFound():
            return Refused("There is no such message any more: it is done, or was removed.", GONE)
        case QueueFull():
            return Refused(f"Nothing was done: {text}", CHANGED)
        case ConfigError():
            return Refused(text, BAD)
        case PartlyDone():
            return Refused(f"It was done in part. {text} Look, and do it again to go on.", AWAY)
        case OutcomeUnknown():
            return Refused("No answer came: it may have been done, or not. Look before you do it again.", AWAY)
        case OutOfMemory():
            return Refused("Redis is full, so nothing was done: it refuses to write.", AWAY)
        case BackendTimeout() | ClosedError():
            return Refused("Redis did not answer in time, and nothing was done. Try it again.", AWAY)
        case BackendError():
            return Refused(f"Redis refused it: {text}", AWAY)
    return Refused(text, AWAY)


def sentence(text: str) -> str:
    """Return *text* as a sentence of bounded length.

    >>> sentence("there is no queue 'a'")
    "There is no queue 'a'."
    """
    text = text[:MAX_TEXT].strip() or "something went wrong"
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
