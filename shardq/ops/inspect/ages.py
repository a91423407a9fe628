"""Since when tenants wait: when the first message of each became deliverable, found in all that waits.

It reads pages of what waits in the streams, and of the shard keys that have something outside of them. Each page is
a script that only reads, and takes less than 2 ms of the server.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from shardq.ops.inspect.lengths import lengths
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.view import QueueView
from shardq.protocol.bodies import text_or_bytes

RUNS: Final = 150
WAITING: Final = 40
PAGES: Final = 3
"""So many pages of its streams are looked at for one tenant."""

Waits = dict[bytes, int]
"""When each tenant's first message became deliverable, in ms."""


def first_waits(state: QueueState, view: QueueView, outside: Sequence[bytes], count: int, until: float) -> Op[Waits]:
    """Return since when tenants wait: at least the *count* of them that wait longest, if so many do.

    *outside* are those whose first message may lie outside of the streams.
    """
    found: Waits = {}
    for at in range(0, len(outside), RUNS):
        part = tuple(outside[at : at + RUNS])
        _note(found, view, (yield from _ask(state, until, Call.on(state.keys, "runs", part))))
    # A stream's messages stand in the order of their times. So the stream that was read least far goes on, until what
    # is left in each came later than the first ones that were found.
    pages = [_Page(number) for number in (yield from _occupied(state, view, until))]
    latest, known = math.inf, 0
    while pages:
        page = heapq.heappop(pages)
        # It only falls, so it need not be worked out each time.
        if len(found) >= max(count, known * 1.2):
            latest, known = heapq.nsmallest(count, found.values())[-1], len(found)
        if page.after_ms > latest:
            break
        _note(found, view, (yield from page.read(state, until)))
        if page:
            heapq.heappush(pages, page)
    return found


def wait_of(state: QueueState, view: QueueView, name: bytes, in_streams: int, until: float) -> Op[int | None]:
    """Return since when one tenant waits, by its *in_streams* messages in the streams; None if none is found.

    Its own streams come first: only after a resize are messages in others. Only so much is looked at as a tenant may
    cost: a message behind more than that is younger than what stands before it.
    """
    found: Waits = {}
    own = () if view.config.parents else view.shard(text_or_bytes(name))
    occupied = yield from _occupied(state, view, until)
    # Its own come first: the sort keeps the order of the others.
    pages = [_Page(number) for number in sorted(occupied, key=lambda number: number not in own)]
    looked_at = 0
    while pages and in_streams > 0 and looked_at < PAGES:
        page = pages.pop(0)
        rows = _pairs((yield from page.read(state, until)))
        rows_of_it = [row for row in rows if tenant_of(view, row[0]) == name]
        _note(found, view, [word for row in rows_of_it for word in row])
        in_streams, looked_at = in_streams - len(rows_of_it), looked_at + 1
        if page:
            # Behind the others: first the heads of all its streams, where the oldest messages are.
            pages.append(page)
    return found.get(name)


def tenant_of(view: QueueView, key: bytes) -> bytes:
    """Return the tenant to which a shard key belongs: itself or, where the queue has parents, its parent."""
    return (key.split(b"/")[0] or key) if view.config.parents else key


class _Page:
    """Where the reading of what one stream has undelivered has come to."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._after = b""
        self._is_over = False

    def __bool__(self) -> bool:
        return not self._is_over

    def __lt__(self, other: _Page) -> bool:
        return self.after_ms < other.after_ms

    @property
    def after_ms(self) -> int:
        """The time of the last message that was read; 0: none was."""
        return int(self._after.partition(b"-")[0] or 0)

    def read(self, state: QueueState, until: float) -> Op[Sequence[Any]]:
        """Return shard keys and times of the next page."""
        args = (self._number, self._after, WAITING)
        call = Call.on(state.keys, "waiting", args, rest=(state.keys.stream(self._number),))
        self._after, rows = yield from _ask(state, until, call)
        self._is_over = self._after == b""
        return list(rows)


def _occupied(state: QueueState, view: QueueView, until: float) -> Op[list[int]]:
    """Return the streams in which something waits."""
    found = yield from lengths(state, view.streams, until)
    return [number for number, length in enumerate(found) if length]


def _note(found: Waits, view: QueueView, rows: Sequence[Any]) -> None:
    for key, ms in _pairs(rows):
        name = tenant_of(view, key)
        # Pages come in no order of time.
        found[name] = min(found.get(name, 2**60), int(ms))


def _pairs(rows: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(rows[::2], rows[1::2], strict=True)


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(always(call), until, state.clock))
