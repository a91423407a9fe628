"""The reference kind of bucket: a cyclic doubly linked list with a sentinel, each entry holding its link cell.

Source: "Purgatory Redesign Proposal", section "Doubly Linked List for Buckets in Timing Wheels". Each list has a lock
of its own, as Kafka's `TimerTaskList` has, since linking takes several steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import cast

from shardq.timing.buckets import CLOSED, Bucket
from shardq.timing.entry import Entry


class _Cell:
    """The link cell of an entry; it stays with the entry when that moves to another bucket."""

    __slots__ = ("after", "before", "bucket", "entry")

    entry: Entry | None
    bucket: LinkedBucket | None
    before: _Cell
    after: _Cell

    def pop(self, entry: Entry, missing: bool, /) -> bool:
        """Take the cell's entry out of whichever bucket it is in: `Entry.cancel` comes here."""
        while (bucket := self.bucket) is not None:
            with bucket.lock:
                if self.bucket is bucket:
                    bucket.unlink(self)
                    return True
        return missing


class LinkedBucket:
    """A bucket that is a cyclic doubly linked list with a sentinel."""

    __slots__ = ("_length", "_sentinel", "end", "lock", "start")

    def __init__(self, start: int = 0, end: int = CLOSED, /) -> None:
        self.start = start
        self.end = end
        self.lock = Lock()
        self._length = 0
        self._sentinel = sentinel = _Cell()
        sentinel.entry = None
        sentinel.before = sentinel.after = sentinel

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Entry]:
        entries = []
        with self.lock:
            cell = self._sentinel.after
            while (entry := cell.entry) is not None:
                entries.append(entry)
                cell = cell.after
        return iter(entries)

    def __setitem__(self, entry: Entry, value: bool, /) -> None:
        cell = _Cell()
        cell.entry = entry
        entry.home = cell
        with self.lock:
            self._link(cell)

    def pop(self, entry: Entry, missing: bool, /) -> bool:
        """Take `entry` out; True if it was in this bucket, else `missing`."""
        cell = entry.home
        if isinstance(cell, _Cell):
            with self.lock:
                if cell.bucket is self:
                    self.unlink(cell)
                    return True
        return missing

    def pour(self, tick: int, to: Mapping[int, Bucket], /) -> None:
        """Move each entry to the bucket of its tick, under the locks of both; only the clock moves, so none cross."""
        for entry in self:
            cell, bucket = entry.home, cast("LinkedBucket", to[entry.due // tick])
            with self.lock, bucket.lock:
                if isinstance(cell, _Cell) and cell.bucket is self:
                    self.unlink(cell)
                    bucket._link(cell)

    def _link(self, cell: _Cell) -> None:
        sentinel = self._sentinel
        last = sentinel.before
        cell.before = last
        cell.after = sentinel
        last.after = sentinel.before = cell
        cell.bucket = self
        self._length += 1

    def unlink(self, cell: _Cell) -> None:
        """Take `cell` out; the caller holds the lock."""
        before, after = cell.before, cell.after
        before.after = after
        after.before = before
        del cell.before, cell.after  # a cell that refers to its neighbours, or to itself, is work for the collector
        cell.bucket = None
        self._length -= 1
