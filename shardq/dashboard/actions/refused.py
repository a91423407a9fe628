"""Why an action is not done, in a sentence for the person; and errors of the library as such sentences."""

from __future__ import annotations

from collections.abc import Sequence
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
from shardq.ops.queue import steps
from shardq.ops.queue.retry import is_denied

MAX_TEXT: Final = 600
"""Letters of an error that a person reads."""

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_LARGE: Final = 413
UNAVAILABLE: Final = 503


MAY_HAVE_BEGUN: Final = (
    "No answer came: it may have begun, or not. If it has, it stands on Failures, and continues by itself within a "
    "minute. Look there before you do it again."
)
DENIED: Final = "Redis does not let the page do this: its user of Redis needs the rights of an operator."
REFUSED_BY_REDIS: Final = "Redis refused it. The log of the page's process says why."


class ActionRefused(Exception):
    """An action is not done. `text` says why, and what to do; `status` is that of the answer."""

    def __init__(self, text: str, status: int = BAD_REQUEST) -> None:
        super().__init__(text)
        self.text, self.status = text, status


class MayHaveBegun(OutcomeUnknown):
    """An action on many messages has begun, or not: no answer came. If it has, this process continues it."""


_PLAIN: Final[Sequence[tuple[type[ShardqError], str]]] = (
    (MayHaveBegun, MAY_HAVE_BEGUN),
    (OutcomeUnknown, "No answer came: it may have been done, or not. Look before you do it again."),
    (OutOfMemory, "Redis is full, so nothing was done: it refuses to write."),
    (BackendTimeout, "Redis did not answer in time, and nothing was done. Try it again."),
    (ClosedError, "The page has ended, and nothing was done. Try it again when it was started again."),
)


def refusal_of(error: ShardqError) -> ActionRefused:
    """Return what the page says of an error of the library. Redis's own text may name hosts: the log alone has it."""
    match error:
        case MessageNotFound():
            return ActionRefused("There is no such message any more: it is done, or was removed.", NOT_FOUND)
        case QueueMissing() | ScheduleNotFound():
            return ActionRefused(sentence(str(error)), NOT_FOUND)
        case QueueFull():
            return ActionRefused(f"Nothing was done: {sentence(str(error))}", CONFLICT)
        case ConfigError():
            return ActionRefused(sentence(str(error)), BAD_REQUEST)
        case PartlyDone():
            return ActionRefused(
                f"It was done in part ({error.done:,} so far). Look, and do it again to continue.", UNAVAILABLE
            )
        case BackendError() if isinstance(error.__cause__, steps.Refused) and is_denied(error.__cause__):
            return ActionRefused(DENIED, UNAVAILABLE)
    return ActionRefused(
        next((text for kind, text in _PLAIN if isinstance(error, kind)), REFUSED_BY_REDIS), UNAVAILABLE
    )


def sentence(text: str) -> str:
    """Return *text* as a sentence of bounded length.

    >>> sentence("there is no queue 'a'")
    "There is no queue 'a'."
    """
    text = text[:MAX_TEXT].strip() or "something went wrong"
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
