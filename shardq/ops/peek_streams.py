"""Look at what streams have undelivered: each in its order, and all of them in turn, as reads go round them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from shardq.model import PeekedMessage
from shardq.ops.peeking import CALLS, LOOKED, Point, Track, Wanted
from shardq.ops.retry import ask, retry_until
from shardq.ops.sight import Sight
from shardq.ops.state import LEGACY_NUMBER, QueueState
from shardq.ops.steps import Argument, Call, Op
from shardq.protocol.standing import Spot, known_of, peeked_message

BYTES = 1024 * 1024
"""After so many bytes of messages a script looks at no more."""


@dataclass(slots=True, eq=False)
class _Source:
    """A stream that is looked at. `rows` were found and not taken yet; `seen` is how far the look has come."""

    turn: int
    taken: Track
    seen: Track
    is_over: bool = False
    rows: deque[tuple[int, str, Any]] = field(default_factory=deque)

    def take(self) -> tuple[str, Any]:
        """Take the next message: the number of the stream, and its row."""
        before, point, row = self.rows.popleft()
        self.taken = Track(self.seen.number, point, before + 1) if self.rows else self.seen
        return self.seen.number, row

    def found(self, reply: Any) -> None:
        """Note what a look has found."""
        rows, point, looked, over = reply
        self.rows += ((self.seen.passed + before, after.decode(), rest) for before, after, *rest in rows)
        self.seen = Track(self.seen.number, point.decode(), self.seen.passed + looked)
        self.is_over = bool(over)
        if not self.rows:
            self.taken = self.seen


def sources_of(state: QueueState, seen: Sight, wanted: Wanted) -> Op[list[Track]]:
    """Return the streams to look at, beginning with the one that is read next."""
    if wanted.stream is not None:
        return [Track(str(wanted.stream))] if wanted.stream < seen.view.streams else []
    ready = [
        int(number)
        for number in (yield from ask(state, "ZRANGEBYSCORE", state.keys.ready, 0, "+inf", until=wanted.until))
    ]
    if wanted.shard_key:
        shard = {*seen.view.shard(wanted.shard_key)}
        ready = [number for number in ready if number in shard]
    ready.sort(key=lambda number: (number < seen.offset, number))
    return [Track(str(number)) for number in ready]


def in_streams(state: QueueState, wanted: Wanted, tracks: list[Track]) -> Op[tuple[list[PeekedMessage], Point | None]]:
    """Return messages of these streams, and the point behind them; None if that is all."""
    sources, found = [_Source(turn, track, track) for turn, track in enumerate(tracks)], list[tuple[str, Any]]()
    for _ in range(CALLS):
        _take(sources, found, wanted.count)
        asked, share = _asked(sources, wanted, wanted.count - len(found))
        if not asked:
            break
        replies = yield from _look(state, wanted, asked, share)
        for source, reply in zip(asked, replies, strict=True):
            source.found(reply)
    _take(sources, found, wanted.count)
    left = [each.taken for each in sources if each.rows or not each.is_over]
    return [_message(wanted, *each) for each in found], Point("waiting", left) if left else None


def _take(sources: list[_Source], found: list[tuple[str, Any]], count: int) -> None:
    """Take messages in turn, as far as it is known which comes next: the first of each stream, then the second."""
    unknown = min(
        ((each.seen.passed, each.turn) for each in sources if not each.rows and not each.is_over), default=None
    )
    while len(found) < count:
        heads = [(each.rows[0][0], each.turn, at) for at, each in enumerate(sources) if each.rows]
        first = min(heads, default=None)
        if first is None or (unknown is not None and unknown < first[:2]):
            return
        source = sources[first[2]]
        found.append(source.take())
        if not source.rows and not source.is_over:
            unknown = min(unknown or (source.seen.passed, source.turn), (source.seen.passed, source.turn))


def _asked(sources: list[_Source], wanted: Wanted, missing: int) -> tuple[list[_Source], int]:
    """Return the streams that must be looked at before anything else can be taken, and how many messages of each."""
    if missing == 0:
        return [], 0
    empty = sorted(
        (each for each in sources if not each.rows and not each.is_over), key=lambda each: (each.seen.passed, each.turn)
    )
    most = LOOKED if wanted.shard_key else min(LOOKED, missing)
    asked = empty[:most]
    share = LOOKED // max(1, len(asked))
    if not wanted.shard_key:
        share = min(share, -(-missing // max(1, len(empty))))
    return asked, max(1, share)


def _look(state: QueueState, wanted: Wanted, sources: list[_Source], share: int) -> Op[Any]:
    args: list[Argument] = [share, BYTES, wanted.shard_key, int(wanted.payloads)]
    for source in sources:
        args += (source.seen.number, source.seen.point)
    names = ["l" if each.seen.number == LEGACY_NUMBER else each.seen.number for each in sources]
    call = Call.on(state.keys, "peek", tuple(args), rest=state.declared(names))
    return (yield from retry_until(lambda _: call, wanted.until, state.clock))


def _message(wanted: Wanted, number: str, row: Any) -> PeekedMessage:
    handle, text, flat = row
    place, _, entry = handle.decode().partition(":")
    stream = None if number == LEGACY_NUMBER else int(number)
    spot = Spot(place, entry, "waiting", stream)
    return peeked_message(spot, flat, known_of(text), has_payload=wanted.payloads)
