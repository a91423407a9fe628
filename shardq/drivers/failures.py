"""redis-py's exceptions, as the two kinds that matter: the server refused, or no answer came."""

from __future__ import annotations

import re
from typing import Any

import redis.exceptions as redis_errors

from shardq.ops.steps import Refused, Unanswered

LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.InvalidResponse, OSError)
"""What redis-py raises when a connection does not work. Some are refusals in disguise; `failure` tells them apart."""

DEMOTED = frozenset({"READONLY", "UNBLOCKED", "MASTERDOWN"})
"""Answers of a node that is no master any more."""

# redis-py cuts the code off these answers.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.NoScriptError, "NOSCRIPT"),
    (redis_errors.ReadOnlyError, "READONLY"),
    (redis_errors.BusyLoadingError, "LOADING"),
    (redis_errors.TryAgainError, "TRYAGAIN"),
    (redis_errors.MovedError, "MOVED"),
    (redis_errors.AskError, "ASK"),
    (redis_errors.MasterDownError, "MASTERDOWN"),
    (redis_errors.ClusterDownError, "CLUSTERDOWN"),
    (redis_errors.OutOfMemoryError, "OOM"),
    (redis_errors.NoPermissionError, "NOPERM"),
    (redis_errors.AuthenticationError, "NOAUTH"),
    (redis_errors.AuthenticationWrongNumberOfArgsError, "NOAUTH"),
)
_FIRST_WORD = re.compile(r"-?([A-Z][A-Z]+)\b ?(.*)", re.DOTALL)


class Redirected(Refused):
    """MOVED or ASK: another node owns the slot."""

    def __init__(self, code: str, address: tuple[str, int]) -> None:
        super().__init__(code, "")
        self.address = address


def refusal(error: Exception) -> Refused | None:
    """The refusal that *error* stands for, None if it is a lost connection."""
    if isinstance(error.__cause__, redis_errors.RedisError):  # asyncio's connect wraps what the handshake was told
        return refusal(error.__cause__)
    if isinstance(error, redis_errors.AskError):
        code = "MOVED" if isinstance(error, redis_errors.MovedError) else "ASK"
        return Redirected(code, (str(error.host), int(error.port)))
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Refused(code, str(error))
    if isinstance(error, redis_errors.ResponseError):
        match = _FIRST_WORD.fullmatch(str(error))
        return Refused(match[1], match[2]) if match else Refused("ERR", str(error))
    return None


def demoted(answers: list[Any]) -> bool:
    """Whether one of *answers* says that the node is no master any more: connections to it are of no use."""
    return any(isinstance(each, Refused) and each.code in DEMOTED for each in answers)


def unconnected(error: Exception) -> Refused | Unanswered:
    """What it means that no connection could be had: nothing was sent."""
    return refusal(error) or Unanswered(_text(error), sent=False)


def unanswered(error: Exception) -> Refused | Unanswered:
    """What it means that a connection broke after sending."""
    return refusal(error) or Unanswered(_text(error), sent=True)


def _text(error: Exception) -> str:
    about = str(error).partition(" : <")[0]  # of a sentinel redis-py shows its whole self
    return f"{type(error).__name__}: {about}"
