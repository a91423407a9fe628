"""A caller that shares calls with others: what it wants, until when it waits, and what it gets."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from shardq.ops.shared_call import SharedCall

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")


class Phase(Enum):
    """Where a caller is."""

    WAITING = "waits for a call"
    LEADING = "must make the next call"
    IN_CALL = "is in a call"
    ENDED = "has its result, or left"


class Caller(Generic[I, R]):
    """One caller: its `item`, until when it waits, and once it has ended, its `result`, which may be an error.

    The driver sets `wake`, which wakes the caller. `shared` is the call that it is in.
    """

    __slots__ = ("item", "phase", "result", "shared", "until", "wake")

    def __init__(self, item: I, until: float, wake: Callable[[], object]) -> None:
        self.item, self.until, self.wake = item, until, wake
        self.phase = Phase.WAITING
        self.result: R | Exception | None = None
        self.shared: SharedCall[I, R] | None = None


def own(result: R | Exception | None) -> R:
    """Return the result of one caller, or raise its error: a copy, since others may get the same one."""
    if isinstance(result, Exception):
        raise copied(result)
    return result  # type: ignore[return-value] # of an caller that has ended


def copied(error: Exception) -> Exception:
    """Return a copy of *error* for one caller."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy
