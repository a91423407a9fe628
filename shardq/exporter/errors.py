"""The meaning of an exporter's errors: whether Redis is away, and what a stranger may hear of them."""

from __future__ import annotations

from typing import Final

from shardq.errors import BackendError, BackendTimeout, QueueMissing, ShardqError
from shardq.ops.queue.retry import UNKNOWN_USER, is_denied
from shardq.ops.queue.steps import Refused

NO_ANSWER: Final = "Redis does not answer"
NO_USER: Final = "Redis does not know the user of this process: its log says more"
NO_RIGHT: Final = "Redis refused this: the log of this process says why"
NO_SENSE: Final = "Redis does not answer as it should: the log of this process says more"

FAILED: Final = "failed: the log of this process says why"
"""The text for an error that nobody expects."""


class ToldError(BackendError):
    """An error with a text that all may hear: it names no server, and nothing that is set there."""


class Garbled(BackendError):
    """Redis's fields of a queue are no numbers of a queue."""


def is_refused(error: ShardqError) -> bool:
    """Say whether Redis refused a call since its user has no right to it."""
    return isinstance(error.__cause__, Refused) and is_denied(error.__cause__)


def is_away(error: ShardqError) -> bool:
    """Say whether Redis did not answer, or only that it does not know this user, which it says to all that is asked."""
    if not isinstance(error, BackendError) or isinstance(error, (Garbled, ToldError)):
        return False
    refused = error.__cause__
    return not isinstance(refused, Refused) or refused.code in UNKNOWN_USER


def is_answer(error: ShardqError) -> bool:
    """Say whether Redis did answer, if not with what was asked for. That a client was closed is neither."""
    return isinstance(error, QueueMissing | Garbled) or (isinstance(error.__cause__, Refused) and not is_away(error))


def public_text(error: ShardqError) -> str:
    """Return what a stranger may hear of an error of Redis: the error itself may name servers, users and rights."""
    if isinstance(error, ToldError):
        return str(error)
    if isinstance(error, BackendTimeout):
        return NO_ANSWER
    if isinstance(error.__cause__, Refused):
        return NO_USER if error.__cause__.code in UNKNOWN_USER else NO_RIGHT
    return NO_SENSE


def is_private(error: ShardqError) -> bool:
    """Say whether the log is to have an error of Redis. That Redis is away is there already, once."""
    return not is_away(error) and not isinstance(error, ToldError)
