"""Turn redis-py's exceptions into two kinds: the server refused (`Refused`), or no answer came (`Unanswered`)."""

from __future__ import annotations

import re
from typing import Any

import redis.exceptions as redis_errors
from redis.connection import DefaultParser

from shardq.ops.queue.steps import Refused, Unanswered

CONNECTION_ERRORS = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.InvalidResponse, OSError)
"""The errors that redis-py raises if a connection does not work. Some of these stand for a refusal; see `refusal`."""

DEMOTED_CODES = frozenset({"READONLY", "UNBLOCKED", "MASTERDOWN"})
"""Error codes that a node sends when it is no longer a master."""

# For these errors redis-py removes the code from the text.
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
parse_error = DefaultParser.parse_error
"""Turns the text of an error reply into one of redis-py's exceptions."""

_NO_FUNCTION = re.compile(
    r"Function not found$|unknown command '?`?FCALL|.* to run the 'fcall(_ro)?' command", re.IGNORECASE
)
"""Texts by which a server says that it cannot run a call as a function: it has not loaded it, it has no functions, or
this user may not call any. All mean what NOSCRIPT means for a script, so they get that code.
"""

_CLOSED = re.compile("broken pipe|reset by peer|connection lost|closed by server", re.IGNORECASE)
"""Texts of redis-py about a connection that the server closed before it had answered."""

_FIRST_WORD = re.compile(r"-?([A-Z][A-Z]+)\b ?(.*)", re.DOTALL)


class Redirected(Refused):
    """MOVED or ASK: another node owns the slot."""

    def __init__(self, code: str, address: tuple[str, int]) -> None:
        super().__init__(code, "")
        self.address = address


def refusal(error: Exception) -> Refused | None:
    """Return the refusal that *error* stands for; None if it is a lost connection."""
    if isinstance(error.__cause__, redis_errors.RedisError):  # asyncio's connect wraps errors of the handshake
        return refusal(error.__cause__)
    if isinstance(error, redis_errors.AskError):
        code = "MOVED" if isinstance(error, redis_errors.MovedError) else "ASK"
        return Redirected(code, (str(error.host), int(error.port)))
    for kind, code in _CODES:
        if isinstance(error, kind) and not _NO_FUNCTION.match(str(error)):
            return Refused(code, str(error))
    if isinstance(error, redis_errors.ResponseError):
        if _NO_FUNCTION.match(str(error)):
            return Refused("NOSCRIPT", str(error))
        match = _FIRST_WORD.fullmatch(str(error))
        return Refused(match[1], match[2]) if match else Refused("ERR", str(error))
    return None


def answer_of(reply: Any) -> Any:
    """Return *reply*, or if it is one of redis-py's exceptions, the refusal that it stands for.

    It is raised if it stands for a lost connection.
    """
    if not isinstance(reply, redis_errors.RedisError):
        return reply
    refused = refusal(reply)
    if refused is None:
        raise reply
    return refused


def demoted(answers: list[Any]) -> bool:
    """Return whether one of *answers* says that the node is no longer a master, so that its connections are useless."""
    for each in answers:  # noqa: SIM110 (each call asks, and a generator would take three times as long)
        if isinstance(each, Refused) and each.code in DEMOTED_CODES:
            return True
    return False


def unconnected(error: Exception) -> Refused | Unanswered:
    """Return the failure for *error* while connecting: nothing was sent."""
    return refusal(error) or Unanswered(_text(error) + _closed_at_once(error), sent=False)


def unsent(error: Exception) -> Unanswered:
    """Return the failure for *error* before anything was sent."""
    return Unanswered(_text(error), sent=False)


def unanswered(error: Exception) -> Refused | Unanswered:
    """Return the failure for *error* after sending: the server may have executed the commands."""
    return refusal(error) or Unanswered(_text(error), sent=True)


def _closed_at_once(error: Exception) -> str:
    """Say why a server may have closed a new connection: one with too many clients does, and its text may be lost."""
    hint = "; the server closed the new connection: it may have too many clients, see its maxclients"
    return hint if _CLOSED.search(str(error)) else ""


def _text(error: Exception) -> str:
    about = str(error).partition(" : <")[0]  # redis-py appends the repr of a sentinel
    return f"{type(error).__name__}: {about}"
