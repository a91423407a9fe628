"""Since when tenants wait: when the first message of each became deliverable, found in all that waits.

It reads pages of what waits in the streams, and of the shard keys that have something in their overflows. Each page is
a script that only reads, and takes less than 2 ms of the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from shardq.engine import NEW
from shardq.ops.lengths import lengths
from shardq.ops.retry import retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Call, Op
from shardq.ops.view import QueueView
from shardq.protocol.replies import text_or_bytes

RUNS: Final = 150
WAITING: Final = 40

Waits = dict[bytes, int]
"""Of each tenant, when its first message became deliverable, in ms."""


def all_waits(state: QueueState, view: QueueView, held: Sequence[bytes], until: float) -> Op[Waits]:
    """Return since when each tenant waits that has anything to be delivered.

    *held* are those that have something outside of the streams.
    """
    found: Waits = {}
    for at in range(0, len(held) if NEW else 0, RUNS):
        _note(found, view, (yield from _ask(state, until, Call.on(state.keys, "runs", tuple(held[at : at + RUNS])))))
    place: Argument = "" if NEW else "("
    while place:
        place, rows = yield from _ask(state, until, Call.on(state.keys, "runs", (place, RUNS)))
        _note(found, view, rows)
    for number in (yield from _occupied(state, view, until)):
        page = _Page(number)
        while page:
            _note(found, view, (yield from page.read(state, until)))
    return found


def wait_of(
    state: QueueState, view: QueueView, name: bytes, in_streams: int, held: Sequence[bytes], until: float
) -> Op[int | None]:
    """Return since when one tenant waits, by its *in_streams* messages in the streams; None if none is found.

    Its own streams come first: only after a resize are messages in others.
    """
    if view.config.parents:
        return (yield from all_waits(state, view, held, until)).get(name)
    found: Waits = {}
    own = view.shard(text_or_bytes(name))
    occupied = yield from _occupied(state, view, until)
    for number in sorted(occupied, key=lambda number: number not in own):
        page = _Page(number)
        while page and in_streams > 0:
            rows = [row for row in _pairs((yield from page.read(state, until))) if row[0] == name]
            _note(found, view, [word for row in rows for word in row])
            in_streams -= len(rows)
    return found.get(name)


def tenant_of(view: QueueView, key: bytes) -> bytes:
    """Return the tenant to which a shard key belongs: itself or, where the queue has parents, its parent."""
    return (key.split(b"/")[0] or key) if view.config.parents else key


class _Page:
    """Where the reading of one stream has come to: first what was given back, then what was never delivered."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._after: Argument = b""
        self._returned: Argument = b"0"
        self._is_over = False

    def __bool__(self) -> bool:
        return not self._is_over

    def read(self, state: QueueState, until: float) -> Op[Sequence[Any]]:
        """Return shard keys and times of the next page."""
        if NEW:
            wanted = (self._number, self._after, WAITING)
            call = Call.on(state.keys, "waiting", wanted, rest=(state.keys.stream(self._number),))
            self._after, rows = yield from _ask(state, until, call)
            self._is_over = self._after == b""
            return list(rows)
        args = (self._number, self._after, self._returned, WAITING)
        call = Call.on(state.keys, "waiting", args, rest=(state.keys.stream(self._number),))
        self._after, reply, rows = yield from _ask(state, until, call)
        self._is_over = self._returned == self._after == b""
        self._returned = reply if isinstance(reply, bytes) else b"%d" % reply
        return list(rows)


def _occupied(state: QueueState, view: QueueView, until: float) -> Op[list[int]]:
    """Return the streams in which something waits."""
    found = yield from lengths(state, view.streams, until)
    return [number for number, length in enumerate(found) if length]


def _note(found: Waits, view: QueueView, rows: Sequence[Any]) -> None:
    for key, ms in _pairs(rows):
        name = tenant_of(view, key)
        found[name] = min(found.get(name, 2**60), int(ms))


def _pairs(rows: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(rows[::2], rows[1::2], strict=True)


def _ask(state: QueueState, until: float, call: Call) -> Op[Any]:
    return (yield from retry_until(lambda _: call, until, state.clock))
