"""Buckets, the entries of one tick of one wheel in the order of their insertion; and the wheel, a circle of buckets.

There are two kinds of buckets behind one interface. `shardq.timing.linked.LinkedBucket` is the reference, the cyclic
doubly linked list of the specification: an entry holds its link cell. `DictBucket` is the default: a dict *is* an
insertion-ordered table that a given entry leaves in O(1), and in CPython it is C. `benchmarks/timing.py` publishes
both: the list takes about two and a half times as long, and more memory.

The timing wheel asks of a bucket that `[]=` and `pop` are atomic, which is what lets insert and cancel do without its
lock. A dict is so by itself, since entries hash and compare by identity, without running Python code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from shardq.timing.entry import Entry

CLOSED: Final = -(1 << 62)
"""The `end` of a bucket that takes no entries: before every tick."""


class Bucket(Protocol):
    """What a wheel needs: a container of entries for the ticks from `start` to before `end`; CLOSED ends it."""

    start: int
    end: int

    def __init__(self, start: int, end: int, /) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Entry]:
        """The entries in order; `list(bucket)` is one atomic step."""
        ...

    def __setitem__(self, entry: Entry, value: bool, /) -> None:
        """Append `entry`, whose `home` is this bucket already. Atomic."""
        ...

    def pop(self, entry: Entry, missing: bool, /) -> bool:
        """Take `entry` out; True if it was in, else `missing`. Atomic."""
        ...

    def pour(self, tick: int, to: Mapping[int, Bucket], /) -> None:
        """Move each entry, in order, to the bucket of its tick: cascade. A concurrent cancel never misses its entry."""
        ...


class Opened(dict[int, Bucket]):
    """The buckets that a cascade fills, by number; they take nothing else yet."""

    def __init__(self, tick: int, kind: type[Bucket]) -> None:
        self.tick = tick
        self.kind = kind

    def __missing__(self, number: int) -> Bucket:
        bucket = self[number] = self.kind(number * self.tick, CLOSED)
        return bucket


class DictBucket(dict[Entry, bool]):
    """A bucket that is a dict."""

    __slots__ = ("end", "start")

    def __init__(self, start: int = 0, end: int = CLOSED, /) -> None:
        self.start = start
        self.end = end

    def pour(self, tick: int, to: Mapping[int, Bucket], /) -> None:
        """Move each entry to the bucket of its tick. It is in both for a moment, so that a cancel finds it in one."""
        for entry in list(self):
            bucket = to[entry.due // tick]
            bucket[entry] = True  # before it says so, or a cancel would look for it in vain
            entry.home = bucket
            if not self.pop(entry, False):  # cancelled here, before or after it was there
                bucket.pop(entry, False)
                entry.home = None


class Wheel:
    """One circle of `size` buckets, each `tick` wide; it shows the turn that ends before the tick `end`."""

    __slots__ = ("buckets", "end", "overflow", "tick")

    def __init__(self, tick: int, size: int, now: int, closed: Bucket) -> None:
        self.tick = tick
        self.buckets = [closed] * size
        self.overflow: Wheel | None = None
        self.turn(now)

    @property
    def interval(self) -> int:
        """How many ticks a turn takes."""
        return self.tick * len(self.buckets)

    def turn(self, now: int) -> None:
        """Show the turn that holds `now`."""
        self.end = (now // self.interval + 1) * self.interval

    def place(self, due: int) -> int:
        """Where in the circle the bucket for the tick `due` is."""
        return due // self.tick % len(self.buckets)
