"""The failure of one try to do a message, as Redis gets it: a text, and the names that group such failures.

Users' errors are looked at here by no code of theirs: an error's class may lie, and its attributes may raise.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, TracebackType
from typing import Final, TypeAlias, TypeGuard, TypeVar, cast

import msgspec

from shardq.arguments import text
from shardq.errors import CodecError, ProcessDied
from shardq.model.failure import FailureReason

MAX_TEXT: Final = 500
MAX_TYPE: Final = 100
"""Bytes of the name of a class."""
MAX_TRACE_BYTES: Final = 2000
"""Bytes of the frames of a traceback."""
MAX_FRAMES: Final = 12
E = TypeVar("E", bound=BaseException)
_NAME: Final = type.__dict__["__name__"].__get__
"""Gives the name of a class, by no code of its metaclass."""
_TRACEBACK: Final = BaseException.__dict__["__traceback__"].__get__
_OWN: Final = str(Path(__file__).parents[1])
_UNFIT: Final = re.compile(r"[\s|\x00-\x1f\x7f]")
"""Characters that no name of a group may have."""


class FailedTry(msgspec.Struct, frozen=True):
    """How a try failed: its `text`, the class of the error, how it failed if that is no matter of the verb, and where.

    `frames` are those of the traceback, a line for each, without any values.
    """

    text: str = ""
    error_type: str = ""
    reason: FailureReason | str = ""
    frames: str = ""


NO_FAILURE: Final = FailedTry()
Problem: TypeAlias = str | BaseException | FailedTry
"""The error or reason that users give for a try that failed: a text, or the exception."""


def failed_try(name: str, value: Problem) -> FailedTry:
    """Return what *value* says. ConfigError, with the *name* of the argument, if it is no text and no error."""
    kind = type(value)
    if kind is FailedTry:
        return cast("FailedTry", value)
    if issubclass(kind, BaseException):
        return of_error(cast("BaseException", value))
    return FailedTry(text(name, cast("str", value)))


def of_error(error: BaseException) -> FailedTry:
    """Return how a try failed that raised *error*."""
    return FailedTry(described(error), class_of(error), reason_of(error), frames_of(error))


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


def class_of(error: BaseException) -> str:
    """The name of the class of *error* as it stands in the name of a group."""
    return fit_for_group(name_of(error))


def fit_for_group(name: str) -> str:
    """Return the name of a class as it may stand in the name of a group: without blanks and bars, and bounded."""
    return _UNFIT.sub("_", name).encode(errors="replace")[:MAX_TYPE].decode(errors="ignore")


def reason_of(error: BaseException) -> FailureReason | str:
    """How a try failed that raised *error*; "" if that is a matter of the verb."""
    if type(error) is ProcessDied:
        return "process died"
    return "cannot decode" if type(error) is CodecError and error.is_of_read else ""


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


def frames_of(error: BaseException) -> str:
    """The innermost frames of the traceback of *error*, a line for each: where it was raised, and no values."""
    if type(error) is ProcessDied:  # they would only show where this process waited for another
        return ""
    trace, last = cast("TracebackType | None", _TRACEBACK(error)), deque[tuple[CodeType, int]](maxlen=MAX_FRAMES)
    while trace is not None:
        last.append((trace.tb_frame.f_code, trace.tb_lineno or 0))
        trace = trace.tb_next
    lines = [f"{text_of(code.co_filename)}:{line} in {text_of(code.co_name)}" for code, line in last]
    return bounded_frames([line for line in lines if not line.startswith(_OWN)])


def bounded_frames(lines: Sequence[str]) -> str:
    """Return as many of the last *lines* as fit."""
    kept = "\n".join(lines)
    while len(kept.encode(errors="replace")) > MAX_TRACE_BYTES:
        kept = kept.partition("\n")[2]
    return kept.encode(errors="replace").decode()
