"""Since when tenants wait: when the first message of each became deliverable.

It reads pages of what waits in the streams, and looks at the shard keys that have something outside of them. Each page
is a script that only reads, and takes less than 2 ms of the server.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from shardq.ops.inspect.lengths import lengths
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.view import QueueView

NAMES: Final = 250
"""Shard keys in one call of `runs`."""
STREAMS: Final = 32
"""Streams in one call of `waiting`."""
ENTRIES: Final = 1000
"""Messages that one call of `waiting` looks at, at most."""
SAME_MS: Final = 12
"""Messages of one stream that may have the same ms, more or less: this many more are asked for at once."""

Waits = dict[bytes, int]
"""When each tenant's first message became deliverable, in ms."""


def first_waits(
    state: QueueState, view: QueueView, outside: Sequence[bytes], streams: Iterable[int], count: int, until: float
) -> Op[Waits]:
    """Return since when tenants wait: at least the *count* of them that wait longest, if there are as many.

    *outside* are those whose first message may lie outside of the streams; something waits in *streams*, no others.
    """
    found: Waits = {}
    for at in range(0, len(outside), NAMES):
        part = tuple(outside[at : at + NAMES])
        _note(found, view, (yield from _ask(state, until, Call.on(state.keys, "runs", part))))
    # A stream's messages stand in the order of their times. So the search continues in each stream until the rest of it
    # came later than the first ones that were found.
    pages = [_AgesPage(number) for number in streams]
    size = min(count + SAME_MS, ENTRIES)
    while pages:
        for rows in (yield from _read(pages, size, state, until)):
            _note(found, view, rows)
        latest = heapq.nsmallest(count, found.values())[-1] if len(found) >= count else math.inf
        pages = [page for page in pages if page and page.after_ms <= latest]
    return found


def waits_in_streams(state: QueueState, view: QueueView, missing: Mapping[bytes, int], until: float) -> Op[Waits]:
    """Return since when tenants wait in streams where this many messages are *missing*: all are looked at."""
    found: Waits = {}
    left = dict(missing)
    occupied = yield from lengths(state, view.streams, until)
    pages = [_AgesPage(number) for number, length in enumerate(occupied) if length]
    while pages and left:
        for rows in (yield from _read(pages, ENTRIES, state, until)):
            for key, ms in _pairs(rows):
                name = tenant_of(view, key)
                if name in left:
                    found[name] = min(found.get(name, 2**60), int(ms))
                    left[name] -= 1
                    if not left[name]:
                        del left[name]
        pages = [page for page in pages if page]
    return found


def tenant_of(view: QueueView, key: bytes) -> bytes:
    """Return the tenant to which a shard key belongs: itself or, where the queue has parents, its parent."""
    return (key.split(b"/")[0] or key) if view.config.parents else key


class _AgesPage:
    """Where the reading of what one stream has undelivered has come to."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.after = b""
        self.is_over = False

    def __bool__(self) -> bool:
        return not self.is_over

    @property
    def after_ms(self) -> int:
        """The time of the last message that was read; 0: none was."""
        return int(self.after.partition(b"-")[0] or 0)


def _read(pages: Sequence[_AgesPage], size: int, state: QueueState, until: float) -> Op[list[Sequence[Any]]]:
    """Move each page on by about *size* messages, and return their shard keys and times."""
    found: list[Sequence[Any]] = []
    together = max(1, min(STREAMS, ENTRIES // size))
    for at in range(0, len(pages), together):
        some = pages[at : at + together]
        streams = tuple(state.keys.stream(page.number) for page in some)
        call = Call.on(state.keys, "waiting", (size, *(page.after for page in some)), rest=streams)
        reply = yield from _ask(state, until, call)
        for page, (after, rows) in zip(some, _pairs(reply), strict=True):
            page.after, page.is_over = after, after == b""
            found.append(rows)
    return found


def _note(found: Waits, view: QueueView, rows: Sequence[Any]) -> None:
    for key, ms in _pairs(rows):
        name = tenant_of(view, key)
        # Pages come in no order of time.
        found[name] = min(found.get(name, 2**60), int(ms))


def _pairs(rows: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(rows[::2], rows[1::2], strict=True)


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(always(call), until, state.clock))
