"""Buckets, each with the entries of some ticks in the order of their insertion; and the wheel, a circle of buckets.

The specification asks for cyclic doubly linked lists, from which a given entry is removed in O(1). A dict can do that,
too, and keeps the order of insertion. It is written in C: linked lists in Python took two and a half times as long.

The timing wheel relies on `bucket[entry] = True` and `bucket.pop(entry, False)` being atomic, so that insert and cancel
need no lock. For a dict they are, because entries hash and compare by identity, which runs no Python code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardq.timing.entry import Entry
from shardq.timing.move import MOVE

CLOSED: Final = -(1 << 62)
"""The `end` of a bucket that takes no entries: before every tick."""

MOVES_UNDER_LOCK: Final = 64
"""Entries that are moved under the lock. A cancel may have to wait for that: about 20 µs."""


class Bucket(dict[Entry, bool]):
    """The entries that are due at the ticks from `start` to before `end`. An `end` of CLOSED: insert nothing."""

    __slots__ = ("end", "start")

    def __init__(self, start: int = 0, end: int = CLOSED, /) -> None:
        self.start = start
        self.end = end

    def cascade(self, tick: int, targets: Mapping[int, Bucket], /) -> None:
        """Move each entry, in order, to the bucket of `targets` for its due tick; buckets there are `tick` wide.

        Other threads may cancel entries meanwhile. Until an entry has left this bucket, it is cancelled here, although
        it is in its new bucket already; afterwards it is cancelled there. So only one of several cancels succeeds.
        """
        entries = list(self)
        for at in range(0, len(entries), MOVES_UNDER_LOCK):
            with MOVE.lock:
                self._move(entries[at : at + MOVES_UNDER_LOCK], tick, targets)

    def _move(self, entries: list[Entry], tick: int, targets: Mapping[int, Bucket]) -> None:
        move = MOVE
        for entry in entries:
            target = targets[entry.due // tick]
            move.target = target
            move.entry = entry
            target[entry] = True
            if not self.pop(entry, False):  # it was cancelled
                target.pop(entry, False)
            elif move.entry is entry:  # else it was cancelled just now, by a finalizer or signal handler of this thread
                entry.bucket = target
        move.entry = move.target = None


class CascadeTargets(dict[int, Bucket]):
    """The buckets that a cascade fills, by number; each is made at its first use. No insert uses them yet."""

    def __init__(self, tick: int, kind: type[Bucket]) -> None:
        self.tick = tick
        self.kind = kind

    def __missing__(self, number: int) -> Bucket:
        bucket = self[number] = self.kind(number * self.tick, CLOSED)
        return bucket


class Wheel:
    """One circle of `size` buckets, each `tick` wide. It shows one revolution, the one that ends before `end`."""

    __slots__ = ("buckets", "end", "overflow", "tick")

    def __init__(self, tick: int, size: int, now: int, closed: Bucket) -> None:
        self.tick = tick
        self.buckets = [closed] * size
        self.overflow: Wheel | None = None
        self.revolve(now)

    @property
    def interval(self) -> int:
        """How many ticks one revolution takes."""
        return self.tick * len(self.buckets)

    def revolve(self, now: int) -> None:
        """Show the revolution that holds the tick `now`."""
        self.end = (now // self.interval + 1) * self.interval

    def index(self, due: int) -> int:
        """The index in `buckets` of the bucket for the tick `due`."""
        return due // self.tick % len(self.buckets)
