"""Look at what streams have undelivered: each in its order, and all of them in turn, as reads go round them."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any

import msgspec

from shardq.model import PeekedMessage
from shardq.ops.inspect.page import CALLS, MESSAGES_A_CALL, Point, Track, WantedMessages
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.sight import Sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.protocol.standing import StandingSpot, known_of, peeked_message

MAX_BYTES_A_CALL = 1024 * 1024
"""Bytes of messages after which a script looks at no more."""

STREAMS_AT_ONCE = 10
"""Streams at a time in which the messages of one shard key are looked for."""

_LAST_ENTRY = (2**53, 0)
_READY = ord("1")


class _Source(msgspec.Struct, eq=False):
    """A stream that is looked at. `rows` were found and not taken yet; `seen` is how far the look has come."""

    turn: int
    taken: Track
    seen: Track
    is_over: bool = False
    rows: deque[tuple[int, str, Any]] = msgspec.field(default_factory=deque)

    @property
    def is_unknown(self) -> bool:
        """Whether its next message, if there is any, was not looked at yet."""
        return not self.rows and not self.is_over

    @property
    def comes(self) -> tuple[int, int]:
        """When the next message that was not looked at comes: in which round, and at which turn."""
        return self.seen.passed, self.turn

    def take(self) -> tuple[str, Any]:
        """Take the next message: the number of the stream, and its row."""
        before, point, row = self.rows.popleft()
        # Behind the last row all that was looked at is passed over, too: none of it was wanted.
        self.taken = Track(self.seen.number, point, before + 1) if self.rows else self.seen
        return self.seen.number, row

    def found(self, reply: Any) -> None:
        """Note what a look has found."""
        rows, point, looked, over = reply
        self.rows += (
            (self.seen.passed + before, entry.decode(), (entry.decode(), fields)) for before, entry, fields in rows
        )
        self.seen = Track(self.seen.number, point.decode(), self.seen.passed + looked)
        self.is_over = bool(over)
        if not self.rows:
            self.taken = self.seen


def sources_of(state: QueueState, seen: Sight, wanted: WantedMessages) -> Op[list[Track]]:
    """Return the streams to look at, beginning with the one that is read next."""
    if wanted.stream is not None:
        return [Track(str(wanted.stream))] if wanted.stream < seen.view.streams else []
    digits = (yield from ask(state, "HGET", state.keys.meta, "ready", until=wanted.until)) or b""
    ready = [number for number, digit in enumerate(digits) if digit == _READY]
    if wanted.shard_key:
        shard = {*seen.view.shard(wanted.shard_key)}
        ready = [number for number in ready if number in shard]
    # As reads go round them: from the offset on, then those before it.
    ready.sort(key=lambda number: (number < seen.offset, number))
    return [Track(str(number)) for number in ready]


def in_streams(
    state: QueueState, wanted: WantedMessages, tracks: list[Track]
) -> Op[tuple[list[PeekedMessage], Point | None]]:
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
    # From `taken`, not from `seen`: rows that were found and not returned are found again by the next page.
    left = [each.taken for each in sources if each.rows or not each.is_over]
    return [_message(wanted, *each) for each in found], Point("waiting", left) if left else None


def _take(sources: list[_Source], found: list[tuple[str, Any]], count: int) -> None:
    """Take messages in turn, as far as it is known which comes next: the first of each stream, then the second."""
    heads = [(each.rows[0][0], each.turn) for each in sources if each.rows]
    unknown = min((each.comes for each in sources if each.is_unknown), default=_LAST_ENTRY)
    heapify(heads)
    while heads and heads[0] < unknown and len(found) < count:
        source = sources[heappop(heads)[1]]
        found.append(source.take())
        if source.rows:
            heappush(heads, (source.rows[0][0], source.turn))
        elif source.is_unknown:
            unknown = min(unknown, source.comes)


def _asked(sources: list[_Source], wanted: WantedMessages, missing: int) -> tuple[list[_Source], int]:
    """Return the streams that must be looked at before anything else can be taken, and how many messages of each."""
    if missing == 0:
        return [], 0
    empty = sorted((each for each in sources if each.is_unknown), key=attrgetter("comes"))
    # A second call within a stream takes Redis longer than to read further, so few streams are asked for more messages
    # each.
    if wanted.shard_key:
        share = MESSAGES_A_CALL // max(1, min(len(empty), STREAMS_AT_ONCE))
    else:
        share = min(MESSAGES_A_CALL, -(-missing // max(1, len(empty))))
        empty = empty[:missing]
    return empty[: MESSAGES_A_CALL // share], share


def _look(state: QueueState, wanted: WantedMessages, sources: list[_Source], share: int) -> Op[Any]:
    args: list[Argument] = [share, MAX_BYTES_A_CALL, int(wanted.payloads), wanted.shard_key]
    for source in sources:
        args += (source.seen.number, source.seen.point)
    call = Call.on(state.keys, "peek", tuple(args), rest=state.declared([each.seen.number for each in sources]))
    return (yield from retry_until(always(call), wanted.until, state.clock))


def _message(wanted: WantedMessages, number: str, row: Any) -> PeekedMessage:
    entry, fields = row
    spot = StandingSpot(number, entry, "waiting", int(number))
    return peeked_message(spot, fields, known_of(b""), has_payload=wanted.payloads)
