"""Rows of a bulk write in columns, and how they go into calls of write.lua."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shardq.errors import BackendTimeout, QueueFull
from shardq.ops.queue.opening import reopen
from shardq.ops.queue.retry import pause_after
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op, Sleep
from shardq.ops.queue.view import QueueView
from shardq.ops.write.command import call_of, positions_of
from shardq.ops.write.outgoing import CHUNK_BYTES, CHUNK_CHOICES, CHUNK_MESSAGES

BOUNDS = frozenset({"backlog", "max_len", "max_backlog", "max_dedup"})
"""Bounds of a queue that are reached for a while only: the writer waits until workers have drained messages."""


class Rows(msgspec.Struct, frozen=True):
    """Checked and encoded messages, in columns. `headers` and `options` are empty if no row has any.

    `options` have the form that the verb `write` takes.
    """

    shard_keys: Sequence[str | bytes]
    tag: str
    bodies: Sequence[bytes]
    headers: Sequence[bytes] = ()
    options: Sequence[str] = ()

    def __len__(self) -> int:
        """How many rows."""
        return len(self.bodies)

    def only(self, numbers: Sequence[int]) -> Rows:
        """Return some of the rows."""

        def some(column: Sequence[Any]) -> list[Any]:
            return [column[at] for at in numbers] if column else []

        return Rows(some(self.shard_keys), self.tag, some(self.bodies), some(self.headers), some(self.options))

    def mark(self, at: int) -> str:
        """Return a checksum of the shard key and body of row *at* alone, as marks were before they were of all rows."""
        key = self.shard_keys[at]
        raw = key.encode() if isinstance(key, str) else key
        return f"{zlib.crc32(self.bodies[at], zlib.crc32(raw)):x}"


@dataclass(frozen=True, slots=True)
class RowPace:
    """How fast rows are sent: `chunk` rows in a call, `calls` calls in a round trip.

    The writer waits while the queue has `max_backlog` messages (0: only the queue's own bounds count). It gives up when
    it could store nothing for `patience` seconds.
    """

    chunk: int = CHUNK_MESSAGES
    calls: int = 8
    max_backlog: int = 0
    patience: float = 600.0


class Tries:
    """The course of a write of rows after trouble: `size` rows in its next call, tried until local time `until`.

    Rows that were stored start the time again. While the queue is full, the writer has its own patience.
    """

    __slots__ = ("_full_until", "_pace", "_state", "_tries", "size", "until")

    def __init__(self, state: QueueState, pace: RowPace) -> None:
        self._state, self._pace, self.size = state, pace, pace.chunk
        self._start()

    def _start(self) -> None:
        self.until = self._state.until()
        self._full_until = self._state.clock.monotonic() + self._pace.patience
        self._tries = 0

    def advanced(self) -> None:
        """Note that rows were stored: the next calls may have more."""
        self._start()
        self.size = min(self._pace.chunk, self.size * 2)

    def again(self, trouble: str) -> Op[bool]:
        """Do what the next try needs after *trouble* ('': none); False if it is time to give up."""
        if trouble == "EPOCH":
            yield from reopen(self._state, self.until)
        elif trouble:
            is_full = trouble in BOUNDS
            if is_full:
                self.size = max(1, self.size // 4)
            if self._state.clock.monotonic() > (self._full_until if is_full else self.until):
                return False
            self._tries += 1
            yield Sleep(pause_after(self._tries))
        return True


def rows_call(state: QueueState, view: QueueView, rows: Rows, at: int, to: int, field: str, sequence: str) -> Call:
    """Make the call that stores the rows from *at* up to before *to*.

    *field* names the bulk offset or producer sequence that remembers it; *sequence* identifies the call in it.
    """
    keys = rows.shard_keys[at:to]
    numbers, positions = positions_of(view, keys)
    columns: list[Sequence[Any]] = [positions, keys, [rows.tag] * (to - at), rows.bodies[at:to]]
    if rows.headers or rows.options:
        blank = [b""] * (to - at)
        columns += [rows.headers[at:to] or blank, rows.options[at:to] or blank]
    return call_of(state, view, field, sequence, numbers, columns)


def spans_of(state: QueueState, rows: Rows, at: int, size: int, calls: int) -> list[tuple[int, int]]:
    """Return the next chunks from row *at* on, each as its first row and the row after its last."""
    found: list[tuple[int, int]] = []
    max_rows = max(1, min(size, CHUNK_CHOICES // state.choices))
    while at < len(rows) and len(found) < calls:
        to = _end(rows, at, min(len(rows), at + max_rows))
        found.append((at, to))
        at = to
    return found


def _end(rows: Rows, at: int, to: int) -> int:
    """Return where the chunk from row *at* ends, at *to* or earlier, so that its bodies take at most CHUNK_BYTES."""
    bodies = rows.bodies[at:to]
    if sum(map(len, bodies)) <= CHUNK_BYTES:
        return to
    size = 0
    for count, body in enumerate(bodies):
        size += len(body)
        if size > CHUNK_BYTES:
            return at + max(1, count)
    return to


def has_room(state: QueueState, pace: RowPace, until: float) -> Op[bool]:
    """Return whether the queue has fewer messages than `pace.max_backlog`."""
    (length,) = yield Batch((Call.on(state.keys, "len"),), until)
    return not isinstance(length, int) or length < pace.max_backlog


def give_up_error(state: QueueState, trouble: str, pace: RowPace, then: str) -> QueueFull | BackendTimeout:
    """Return the error for rows that could not be stored for too long because of *trouble*, and what holds *then*."""
    name = state.keys.name
    if trouble in BOUNDS:
        return QueueFull(
            f"queue {name!r} took no more rows for {pace.patience:g} s, since it is full ({trouble}): let workers "
            f"drain it, or raise the bound; {then}",
            bound=trouble,
            limit=getattr(state.config, trouble, pace.max_backlog),
        )
    return BackendTimeout(f"Redis stored no rows of queue {name!r} for {state.timeout:g} s ({trouble}); {then}")
