"""The messages that a queue holds, as a table with the state of each message.

Each task reads the messages with ids from one to another, or those with some shard keys, wherever they lie:
shardq.spark.ops.sweep says why none is missed, or read twice. Messages that an admission window holds back lie in
blocks, each of one shard key and with ids of all times: cut by ids, each task would read all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError
from shardq.model import QueueStats
from shardq.ops.inspect.stats import statistics
from shardq.ops.queue.state import QueueState
from shardq.protocol.bodies import FROM_OVERFLOW, body_of, entry_of, field_of_payload, fields_of_tail, records_of
from shardq.spark.entries import Entries, batch_of, gathered, picked
from shardq.spark.ops import sweep
from shardq.spark.ops.scan import entry_id
from shardq.spark.ops.sweep import (
    MAX_WHOLE_BLOCKS,
    SCAN_START,
    STATES_A_CALL,
    KeyShare,
    OverflowHolder,
    Piece,
    Portion,
    SweepSpot,
    SweepTold,
    share_of,
)
from shardq.spark.options import Reading, listed
from shardq.spark.pages import FIRST_PAGE_ROWS, PAGE_BYTES, pages
from shardq.spark.parts import SparkPart

MESSAGES_OF_TASK = 10_000
"""Messages that are worth a task of their own."""

OUTSIDE_PLACE: Final = "d"
"""The place of messages outside of the streams: held back, delayed, or given back."""

BLOCK_BYTES: Final = 512 * 1024
"""Bytes of overflows that are read in a round trip."""

MAX_KEYS: Final = 1_000_000
"""With more shard keys that wait, parts are cut by ids: they are sent to the tasks by name."""

MAX_AGAIN: Final = 16
"""Parts by shard keys each read the streams: one of this many messages may be read again, so the cost is flat."""

MAX_ASKED: Final = 1000
"""Shard keys in a call."""

BLOCK_DISTANCE: Final = 4
"""So near to an end of a part it is found which block of a large shard key is the first, or last."""

MAX_SALTS: Final = 16
"""Ways to share out shard keys that are compared, if these are few."""


def live_parts(client: Client, state: QueueState, options: Reading, most: int) -> list[SparkPart]:
    """The ids of the messages in pieces with about as many messages each."""
    stats = client.run(statistics(state))
    chosen = {int(number) for number in listed(options.streams)}
    if beyond := sorted(number for number in chosen if number >= len(stats.streams)):
        raise ConfigError(f"queue {state.keys.name!r} has {len(stats.streams)} streams, so there is no {beyond[0]}")
    places = tuple(map(str, sorted(chosen))) or (*map(str, range(len(stats.streams))), OUTSIDE_PLACE)
    held = stats.backlog + stats.in_flight + stats.delayed
    pieces = min(most, -(-held // MESSAGES_OF_TASK))
    if pieces <= 1:
        return [SparkPart(state.keys.tag, places)]
    if OUTSIDE_PLACE in places and stats.held_back > sum(stats.streams):
        pieces = min(pieces, 1 + held // max(1, MAX_AGAIN * sum(stats.streams)))
        if pieces == 1:
            return [SparkPart(state.keys.tag, places)]
        keys = [key.encode() for key in dict.fromkeys(listed(options.shard_keys))]
        holding = {each.shard_key: each for each in _holders(client, state, keys)}
        if len(holding) <= MAX_KEYS and _is_in_blocks(client, state, stats, holding.values()):
            return _by_key(client, state, stats, places, [*holding.values()], pieces)
    bounds = _bounds(client.run(sweep.cuts(state, stats, pieces)))
    return [SparkPart(state.keys.tag, places, *each) for each in bounds]


def _is_in_blocks(client: Client, state: QueueState, stats: QueueStats, holding: Iterable[OverflowHolder]) -> bool:
    """Whether most of what is held back lies in blocks.

    Messages that lie by themselves would be looked up in each part by keys.
    """
    alone = client.run(sweep.outside(state)) - sum(each.blocks for each in holding)
    return alone - stats.in_flight - stats.delayed <= stats.held_back // 2


def _bounds(ends: Sequence[str]) -> list[tuple[str, str]]:
    return [*zip(("-", *ends), (*ends, "+"), strict=True)]


def _by_key(
    client: Client,
    state: QueueState,
    stats: QueueStats,
    places: tuple[str, ...],
    holding: list[OverflowHolder],
    pieces: int,
) -> list[SparkPart]:
    """Parts with about as many blocks each: every shard key in one of them, apart from large ones, cut by ids."""
    sizes = {each.shard_key: each.blocks for each in holding}
    most = sum(sizes.values()) // pieces
    large = frozenset(key for key, size in sizes.items() if size > max(most, MAX_WHOLE_BLOCKS))
    bounds = _bounds(client.run(sweep.cuts(state, stats, pieces)) if large else [])
    bounds += [("0-0", "0-0")] * (pieces - len(bounds))  # what is large was written in fewer moments
    small = {key: size for key, size in sizes.items() if key not in large}
    salt = min(range(MAX_SALTS if len(small) <= MAX_ASKED else 1), key=lambda salt: max(_shared(small, salt, pieces)))
    keys: list[list[bytes]] = [[*large] for _ in range(pieces)]
    for key in small:
        keys[share_of(key, salt, pieces)].append(key)
    return [
        SparkPart(state.keys.tag, places, *bounds[nth], share=KeyShare(nth, pieces, salt, large), keys=tuple(keys[nth]))
        for nth in range(pieces)
    ]


def _shared(sizes: Mapping[bytes, int], salt: int, of: int) -> list[int]:
    """The sizes of the shares that this salt makes."""
    found = [0] * of
    for key, size in sizes.items():
        found[share_of(key, salt, of)] += size
    return found


def _holders(client: Client, state: QueueState, keys: Sequence[bytes]) -> Iterator[OverflowHolder]:
    """The overflows of these shard keys, or of all if there are none."""
    for at in range(0, max(1, len(keys)), MAX_ASKED):
        cursor = b""
        while cursor != SCAN_START:
            cursor, found = client.run(sweep.holders(state, cursor or SCAN_START, keys[at : at + MAX_ASKED]))
            yield from found


def _alone(client: Client, state: QueueState) -> Iterator[bytes]:
    """The ids of what lies by itself; one may come twice."""
    cursor = b""
    while cursor != SCAN_START:
        cursor, found = client.run(sweep.alone(state, cursor or SCAN_START))
        yield from found


def read_live(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: SparkPart
) -> Iterator[pa.RecordBatch]:
    """The messages of *part*, page by page."""
    keys = frozenset(key.encode() for key in listed(options.shard_keys))
    found = (picked(each, options.states, keys) for each in _Sweep(client, state, options, part).entries())
    for some in gathered(each for each in found if len(each)):
        yield batch_of(some, schema)


_Held: TypeAlias = tuple[bytes, bytes, bytes]
"""A message that waits in an overflow: its entry id, its shard key, and what its body has behind that."""

_Block: TypeAlias = tuple[OverflowHolder, int]
"""A block of an overflow, by its number."""


class _Standing(NamedTuple):
    """The standing of one message: see the columns of the table."""

    state: str
    deliveries: int = 0
    due: int | None = None
    lease_until: int | None = None
    last_error: str = ""


class _Sweep:
    """One walk through the streams, the overflows, and what lies by itself, in this order.

    `seen` has the ids of the messages that it has met.
    """

    def __init__(self, client: Client, state: QueueState, options: Reading, part: SparkPart) -> None:
        self._client, self._state, self._options = client, state, options
        self._states = frozenset(options.states)
        self._streams = [place for place in part.places if place != OUTSIDE_PLACE]
        self._is_whole = OUTSIDE_PLACE in part.places
        cut = _piece(options, part.after, part.until)
        self._portion = Portion(_piece(options) if part.share else cut, part.share, cut)
        self._is_every = self._portion == Portion()
        self._keys = part.keys
        self._moves = client.run(sweep.moves(state))
        self._index = client.run(sweep.index(state, self._streams, self._portion))
        self._seen: set[bytes] = set()
        self._count = self._blocks = min(options.fetch_size, FIRST_PAGE_ROWS)

    def entries(self) -> Iterator[Entries]:
        """The messages of the piece; for some states only, no more is looked at than they need.

        Delayed messages lie by themselves, and so do those that were in an overflow and are in flight.
        """
        if sweep.order(self._portion.piece.after) >= sweep.order(self._portion.piece.upto):
            return
        if self._states & {"backlog", "in_flight"}:
            for place in self._streams:
                yield from self._of_stream(place)
        if self._is_whole and "backlog" in self._states:
            yield from self._overflows()
        if self._is_whole:
            yield from self._alone()

    def _of_stream(self, place: str) -> Iterator[Entries]:
        """The messages in a stream. Above the cursor that is backlog, and nothing more is known of it."""
        key = self._state.keys.stream(int(place))
        for page in pages(self._client, self._state, key, *self._portion.piece, self._options.fetch_size):
            rows = [row for row in page if self._portion.has(row[0], key_of(row[1]))] if self._portion.share else page
            ids = [row[0] for row in rows]
            self._seen.update(ids)
            found = Entries(self._state.keys.name, place, ids, [row[1] for row in rows], "backlog")
            old = bisect_right(ids, self._index.cursors[place], key=entry_id)
            if old:
                _say(found, [*self._delivered(place, ids[:old]), *[_Standing("backlog")] * (len(ids) - old)])
            yield found

    def _delivered(self, place: str, ids: Sequence[bytes]) -> list[_Standing]:
        """The standing of messages below the cursor. Those that are gone were delivered while we read."""
        spots = {each: self._index.spots[each] for each in ids if each in self._index.spots}
        errors = self._client.run(sweep.last_errors(self._state, spots))
        for page in self._told(place, [each for each in ids if each not in spots]):
            spots |= {each: told.spot if told else SweepSpot("in_flight") for each, told in page}
            errors |= {each: told.last_error for each, told in page if told}
        return [self._standing(spots[each], errors.get(each, "")) for each in ids]

    def _overflows(self) -> Iterator[Entries]:
        """The messages in overflows: those of the wanted shard keys, if options or the part say which, else all."""
        if self._portion.share:
            yield from self._of_share(self._portion.share)
            return
        cursor, keys = b"", [key.encode() for key in dict.fromkeys(listed(self._options.shard_keys))]
        while cursor != SCAN_START:
            cursor, found = self._client.run(sweep.holders(self._state, cursor or SCAN_START, keys))
            small = [each for each in found if each.blocks <= MAX_WHOLE_BLOCKS]
            yield from self._of_blocks([block for each in small for block in each.numbered()])
            for each in found:
                if each.blocks > MAX_WHOLE_BLOCKS:
                    first, _ = self._around(each, self._portion.piece.after, MAX_WHOLE_BLOCKS)
                    yield from self._of_blocks([(each, number) for number in range(first, each.tail + 1)])

    def _of_share(self, share: KeyShare) -> Iterator[Entries]:
        """The messages in the overflows of a share: whole ones, and for large ones those between the points."""
        small = [key for key in self._keys if key not in share.large]
        for at in range(0, len(small), MAX_ASKED):
            found = _holders(self._client, self._state, small[at : at + MAX_ASKED])
            yield from self._of_blocks([block for each in found for block in each.numbered()])
        for each in _holders(self._client, self._state, [*share.large]) if share.large else ():
            first, _ = self._around(each, self._portion.cut.after, BLOCK_DISTANCE)
            _, last = self._around(each, self._portion.cut.upto, BLOCK_DISTANCE)
            yield from self._of_blocks([(each, number) for number in range(first, last + 1)])

    def _around(self, holder: OverflowHolder, entry: str, near: int) -> tuple[int, int]:
        return self._client.run(sweep.blocks_around(self._state, holder, entry, near))

    def _of_blocks(self, wanted: Sequence[_Block]) -> Iterator[Entries]:
        """The messages in these blocks, up to the first one that only has some that come after the piece.

        A block's messages may move while we read it: then they are not met again where they go.
        """
        at = 0
        while at < len(wanted):
            some = wanted[at : at + self._blocks]
            texts = self._client.run(sweep.blocks(self._state, [holder.field(number) for holder, number in some]))
            within, apart = list[_Held](), list[_Held]()
            for (holder, number), text in self._of_piece(some, texts):
                for entry, tail, is_apart in records_of(text, holder.offset if number == holder.head else 0):
                    if not self._has(entry, holder.shard_key):
                        self._index.others.add(entry)
                    elif tail is None:
                        self._index.spots[entry] = SweepSpot("held")
                    elif entry not in self._seen:
                        (apart if is_apart else within).append((entry, holder.shard_key, tail))
            yield from self._held(within)
            while apart:
                page, apart = apart[: self._count], apart[self._count :]
                yield from self._held(self._with_payloads(page))
            at += len(some)
            holder, _ = some[0]
            is_of_one, upto = holder == wanted[-1][0], sweep.order(self._portion.of(holder.shard_key).upto)
            if is_of_one and texts[-1] and sweep.first_id(texts[-1]) > upto:
                return
            size = sum(len(text) for text in texts if text) // len(some)
            self._blocks = max(1, min(self._options.fetch_size, BLOCK_BYTES // max(1, size)))

    def _held(self, messages: Sequence[_Held]) -> Iterator[Entries]:
        ids = [entry for entry, _, _ in messages]
        self._seen.update(ids)
        if ids:
            flats = [fields_of_tail(shard_key, tail) for _, shard_key, tail in messages]
            yield Entries(self._state.keys.name, FROM_OVERFLOW, ids, flats, "backlog")

    def _with_payloads(self, messages: Sequence[_Held]) -> list[_Held]:
        """These messages, each tail with the payload, which lies by itself; without those that are over meanwhile."""
        payloads = self._client.run(sweep.blocks(self._state, [field_of_payload(entry) for entry, _, _ in messages]))
        self._fit(payloads, len(messages))
        found = zip(messages, payloads, strict=True)
        return [(entry, key, tail + payload) for (entry, key, tail), payload in found if payload is not None]

    def _of_piece(self, blocks: Sequence[_Block], texts: Sequence[bytes | None]) -> list[tuple[_Block, bytes]]:
        """Those of some blocks that may have messages of the piece: in the blocks of a shard key the ids grow."""
        there = [(block, text) for block, text in zip(blocks, texts, strict=True) if text]
        if self._is_every:
            return there
        firsts = [sweep.first_id(text) for _, text in there]
        found = []
        for at, each in enumerate(there):
            holder, _ = each[0]
            after, upto = map(sweep.order, self._portion.of(holder.shard_key))
            goes_on = at + 1 < len(there) and there[at + 1][0][0] == holder
            if firsts[at] <= upto and not (goes_on and firsts[at + 1] <= after):
                found.append(each)
        return found

    def _has(self, entry: bytes, shard_key: bytes) -> bool:
        return self._is_every or self._portion.has(entry, shard_key)

    def _alone(self) -> Iterator[Entries]:
        """The messages that lie by themselves, and were not met before.

        If nothing has moved since the index was made, that has all of it. Else all names are looked at; the shard key
        of one that is not in the index is known only when it is looked up.
        """
        is_known = self._client.run(sweep.moves(self._state)) == self._moves
        share, ids = self._portion.share, list[bytes]()
        for each in chain([*self._index.spots] if is_known else _alone(self._client, self._state), (None,)):
            is_new = each is not None and each not in self._seen and each not in self._index.others
            if each is not None and is_new and (share or self._has(each, b"")):
                self._seen.add(each)
                ids.append(each)
            if len(ids) >= self._options.fetch_size or each is None:
                yield from self._of_known([each for each in ids if each in self._index.spots])
                yield from self._of_others([each for each in ids if each not in self._index.spots])
                ids = []

    def _of_known(self, ids: Sequence[bytes]) -> Iterator[Entries]:
        """Those of these messages that are in a wanted state, in pages of bounded size."""
        spots, at = self._index.spots, 0
        ids = [each for each in ids if self._standing(spots[each]).state in self._states]
        while at < len(ids):
            some = ids[at : at + self._count]
            read = dict(zip(some, self._client.run(sweep.bodies(self._state, some)), strict=True))
            errors = self._client.run(sweep.last_errors(self._state, {each: spots[each] for each in some}))
            said = {each: self._standing(spots[each], errors.get(each, "")) for each in some}
            yield from self._of_bodies([(each, *stored, said[each]) for each, stored in read.items() if stored])
            at += len(some)
            self._fit([part for stored in read.values() for part in stored or ()], len(some))

    def _fit(self, parts: Sequence[bytes | None], messages: int) -> None:
        """Ask for as many messages in the next page as fit, given how large these were."""
        size = sum(len(part) for part in parts if part) // messages
        self._count = max(1, min(self._options.fetch_size, PAGE_BYTES // max(1, size)))

    def _of_others(self, ids: Sequence[bytes]) -> Iterator[Entries]:
        """Messages that moved while we read what is known of each, so that we found them nowhere."""
        for page in self._told(OUTSIDE_PLACE, ids):
            yield from self._of_bodies([
                (each, told.body, told.payload, self._standing(told.spot, told.last_error))
                for each, told in page if told and self._has(each, body_of(told.body, told.payload).key)
            ])  # fmt: skip

    def _of_bodies(self, rows: Sequence[tuple[bytes, bytes, bytes | None, _Standing]]) -> Iterator[Entries]:
        if rows:
            ids, bodies, payloads, said = zip(*rows, strict=True)
            origins, flats = zip(*map(entry_of, bodies, payloads), strict=True)
            entries = Entries(self._state.keys.name, OUTSIDE_PLACE, [*ids], [*flats], "", origins=origins)
            _say(entries, said)
            yield entries

    def _told(self, place: str, ids: Sequence[bytes]) -> Iterator[list[tuple[bytes, SweepTold | None]]]:
        """The server's answer about these messages now, page by page."""
        at, head = 0, place.encode() + b":"
        while at < len(ids):
            page = self._client.run(sweep.states(self._state, [head + each for each in ids[at : at + STATES_A_CALL]]))
            yield list(zip(ids[at : at + len(page)], page, strict=True))
            at += len(page)

    def _standing(self, spot: SweepSpot, error: str = "") -> _Standing:
        """The standing of a message. The lease of one that was delivered while we read is not known."""
        now = self._index.now
        if spot.state == "delayed" and spot.at is not None:
            state = "delayed" if spot.at > now else "backlog"
            return _Standing(state, spot.deliveries, due=spot.at, last_error=error)
        if spot.state == "in_flight":
            state = "in_flight" if spot.at is None or spot.at > now else "backlog"
            return _Standing(state, spot.deliveries, lease_until=spot.at, last_error=error)
        return _Standing("backlog", spot.deliveries, last_error=error)


def _piece(options: Reading, start: str = "-", end: str = "+") -> Piece:
    """The ids that are wanted between two points."""
    every = Piece()
    after = [every.after if start == "-" else start]
    upto = [every.upto if end == "+" else end]
    if options.starting_timestamp:
        after.append(f"{options.starting_timestamp - 1}-{2**64 - 1}")
    if options.ending_timestamp:
        upto.append(f"{options.ending_timestamp}-{2**64 - 1}")
    return Piece(max(after, key=sweep.order), min(upto, key=sweep.order))


def key_of(fields: Sequence[bytes]) -> bytes:
    """The shard key of an entry of a stream."""
    return fields[1] if len(fields) > 1 else b""


def _say(entries: Entries, standings: Sequence[_Standing]) -> None:
    """Put the standing of each of the entries into columns."""
    columns = zip(*standings, strict=True)
    entries.states, entries.counts, entries.due, entries.lease_until, entries.errors = map(list, columns)
