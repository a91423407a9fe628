"""A caller that shares calls with others: what it wants, until when it waits, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Generic, TypeVar

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")


class Phase(Enum):
    """Where a caller is.

    | from | to | when |
    |---|---|---|
    | WAITING | LEADING | fewer calls than the most are under way, or one has ended: it makes the next one |
    | WAITING | IN_CALL | a leader makes a call for it, too, or a task makes one for all who wait |
    | LEADING | IN_CALL | its call is also for those who wait, or it continues the call of a leader that left |
    | IN_CALL | LEADING | the leader of its call left, and it is the first who stayed (`SharedCall.heir`) |
    | WAITING, IN_CALL | ENDED | it has its result, its time is up, or it left |
    """

    WAITING = "waits for a call"
    LEADING = "must make the next call"
    IN_CALL = "is in a call"
    ENDED = "has its result, or left"


class Caller(Generic[I, R]):
    """One caller: its `item`, until when it waits, and once it has ended, its `result`, which may be an error.

    The driver sets `wake`, which wakes the caller. `shared` is the call that it is in. The calls of those with the same
    `lane` are made one after the other, in the order in which they came; None if the order does not matter.
    """

    __slots__ = ("item", "lane", "phase", "result", "shared", "until", "wake")

    def __init__(self, item: I, until: float, wake: Callable[[], object], lane: Hashable = None) -> None:
        self.item, self.until, self.wake, self.lane = item, until, wake, lane
        self.phase = Phase.WAITING
        self.result: R | Exception | None = None
        self.shared: Any = None  # a SharedCall, which knows its callers


def posted(item: I, until: float, lane: Hashable) -> Caller[I, Any]:
    """Return a caller that nobody waits for. The driver sets its `wake`."""
    return Caller(item, until, wake_nobody, lane)


def must_tell(caller: Caller[Any, Any]) -> bool:
    """Return whether the result of a posted caller must be passed on now: it has ended, and nobody asked yet."""
    if caller.phase is not Phase.ENDED or caller.wake is wake_nobody:
        return False
    caller.wake = wake_nobody
    return True


def wake_nobody() -> None:
    """Wake nobody."""


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
