"""A call of a task as a payload: its name and its arguments, and nothing else (docs/tasks.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec

from shardq.errors import ConfigError
from shardq.model.annotation import ANY_VALUE, Annotation

T_co = TypeVar("T_co", covariant=True)
IS_NAME: Final = re.compile(r"[\w.:/<>-]{1,200}")
"""The form of a task's name."""
_IN_JSON: Final = re.compile(rb'\["([\w.:/<>\x80-\xff-]{1,800})",\s*\{')


class Call(msgspec.Struct, Generic[T_co], array_like=True, frozen=True):
    """The result of `Task.call`. Each call that takes a payload takes it; `T_co` is the type of the task's result.

    It is stored as the list [name, {argument: value}], so a producer in another language can write it, too. These are
    `name` and `arguments`; `returns` is the type of the result.

    >>> Call("mail.send", {"to": "ada"}).arguments
    {'to': 'ada'}
    """

    name: str
    arguments: dict[str, Any]
    returns: ClassVar[Annotation] = ANY_VALUE

    def __repr__(self) -> str:
        """Show the task's name, and no argument."""
        return f"Call({self.name!r})"


class Callee(Protocol[T_co]):
    """A task, as far as those who wait for its results know it."""

    @property
    def returns(self) -> Annotation:
        """The type of its results."""

    @property
    def call(self) -> Callable[..., Call[T_co]]:
        """Makes a call of it."""


def returns_of(task: Callee[Any]) -> Annotation:
    """Return of what type a task's results are. ConfigError for what is no task."""
    if not callable(getattr(task, "call", None)) or not isinstance(getattr(task, "returns", None), Annotation):
        raise ConfigError(f"task must be what @tasks.task made; this is of type {type(task).__name__}")
    return task.returns


def called(tag: str, body: bytes) -> str:
    """Return the name of the task that a payload calls, without a look at any argument; '' if it is no call.

    Payloads that a codec of the user's own has encoded have none. In MessagePack a call begins with the mark of a list
    of two, then the name's mark and size, and after the name comes the mark of a map.

    >>> called("m", msgspec.msgpack.encode(["app.tasks.report", {"first": "secret"}]))
    'app.tasks.report'
    """
    if tag == "j":
        found = _IN_JSON.match(body)
        return _checked(found[1]) if found else ""
    if tag != "m" or body[:1] != b"\x92" or len(body) < 4:
        return ""
    mark, start = body[1], 2
    size = mark - 0xA0 if 0xA0 <= mark <= 0xBF else 0
    if mark == 0xD9:
        size, start = body[2], 3
    after = body[start + size : start + size + 1]
    if not (after and (0x80 <= after[0] <= 0x8F or after[0] in (0xDE, 0xDF))):
        return ""
    return _checked(body[start : start + size])


def _checked(raw: bytes) -> str:
    name = raw.decode(errors="replace")
    return name if IS_NAME.fullmatch(name) else ""
