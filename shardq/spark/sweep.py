"""The messages that a queue holds, as a table with the state of each message.

Each task reads the messages with ids from one to another, wherever they lie: shardq.ops.sweep says why none is missed,
or read twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError
from shardq.ops import sweep
from shardq.ops.admin import statistics
from shardq.ops.scan import EntryId, entry_id
from shardq.ops.state import QueueState
from shardq.ops.sweep import BEGIN, NAMES, Piece, Told
from shardq.protocol.bodies import FROM_OVERFLOW, entry_of, fields_of_tail, records_of
from shardq.spark.entries import Entries, batch_of, picked
from shardq.spark.options import Reading, listed
from shardq.spark.pages import pages
from shardq.spark.parts import Part

LARGE = 2_000
"""So many messages are worth a task of their own."""

OUTSIDE: Final = "d"
"""The place of what lies outside of the streams: what is held back, delayed, or was given back."""


def live_parts(client: Client, state: QueueState, options: Reading, most: int) -> list[Part]:
    """The ids of the messages in pieces with about as many messages each."""
    stats = client.run(statistics(state))
    chosen = {int(number) for number in listed(options.streams)}
    if beyond := sorted(number for number in chosen if number >= len(stats.streams)):
        raise ConfigError(f"queue {state.keys.name!r} has {len(stats.streams)} streams, so there is no {beyond[0]}")
    places = tuple(map(str, sorted(chosen))) or (*map(str, range(len(stats.streams))), OUTSIDE)
    held = stats.backlog + stats.in_flight + stats.delayed
    pieces = min(most, -(-held // LARGE))
    ends = client.run(sweep.cuts(state, stats, pieces)) if pieces > 1 else []
    bounds = zip(("-", *ends), (*ends, "+"), strict=True)
    return [Part(state.keys.name, places, *each) for each in bounds]


def read_live(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: Part
) -> Iterator[pa.RecordBatch]:
    """The messages of *part*, page by page."""
    keys = frozenset(key.encode() for key in listed(options.shard_keys))
    for entries in _Sweep(client, state, options, part).entries():
        some = picked(entries, options.states, keys)
        if len(some):
            yield batch_of(some, schema)


class _Standing(NamedTuple):
    """What is said of one message: see the columns of the table."""

    state: str
    deliveries: int = 0
    due: int | None = None
    lease_until: int | None = None
    last_error: str = ""


class _Sweep:
    """One walk through the streams, the overflows, and what lies by itself, in this order.

    `seen` has the ids of the messages that it has met.
    """

    def __init__(self, client: Client, state: QueueState, options: Reading, part: Part) -> None:
        self._client, self._state, self._options = client, state, options
        self._streams = [place for place in part.places if place != OUTSIDE]
        self._is_whole = OUTSIDE in part.places
        self._piece = _piece(options, part)
        self._after, self._upto = map(_order, self._piece)
        self._leases = client.run(sweep.leases(state, self._streams))
        self._seen: set[bytes] = set()

    def entries(self) -> Iterator[Entries]:
        """The messages of the piece; of some states only, no more is looked at than they need.

        What is delayed lies by itself, and so does what was in an overflow and is in flight.
        """
        states = {*self._options.states}
        if states & {"backlog", "in_flight"}:
            for place in self._streams:
                yield from self._of_stream(place)
        if self._is_whole and "backlog" in states:
            for names in self._holders():
                yield from self._of_overflows(names)
        if self._is_whole:
            yield from self._alone()

    def _of_stream(self, place: str) -> Iterator[Entries]:
        """What lies in a stream. Above the cursor that is backlog, and nothing more is known of it."""
        key = self._state.keys.stream(int(place))
        for rows in pages(self._client, self._state, key, *self._piece, self._options.fetch_size):
            ids = [row[0] for row in rows]
            self._seen.update(ids)
            found = Entries(self._state.keys.name, place, ids, [row[1] for row in rows], "backlog")
            old = bisect_right(ids, self._leases.cursors[place], key=entry_id)
            if old:
                _say(found, [*self._delivered(place, ids[:old]), *[_Standing("backlog")] * (len(ids) - old)])
            yield found

    def _delivered(self, place: str, ids: Sequence[bytes]) -> list[_Standing]:
        """What is said of messages below the cursor: in flight, or given back without an error, in their place."""
        handles = [b"%b:%b" % (place.encode(), each) for each in ids]
        unknown = [handle for handle in handles if handle not in self._leases.by_handle]
        told = dict(zip(unknown, self._told(unknown), strict=True))
        return [self._standing(handle, told.get(handle)) for handle in handles]

    def _holders(self) -> Iterator[list[bytes]]:
        """The shard keys of the wanted messages, if options say so; else those that have an overflow, page by page."""
        if keys := [key.encode() for key in listed(self._options.shard_keys)]:
            yield keys
            return
        cursor = b""
        while cursor != BEGIN:
            cursor, names = self._client.run(sweep.holders(self._state, cursor or BEGIN))
            yield names

    def _of_overflows(self, names: list[bytes]) -> Iterator[Entries]:
        """What waits in the overflows of some shard keys. Of a message with a unique key there is only its id."""
        names, begun = [*dict.fromkeys(names)], self._piece.after
        while names:
            done, found = self._client.run(sweep.blocks(self._state, names[:NAMES], begun, self._piece))
            ids, flats, last = [], [], b""
            for key, text in found:
                for entry, tail in records_of(text):
                    last = entry
                    if tail is not None and entry not in self._seen and self._after < entry_id(entry) <= self._upto:
                        ids.append(entry)
                        flats.append(fields_of_tail(key, tail))
            self._seen.update(ids)
            names = names[done:]
            goes_on = bool(found and names and found[-1][0] == names[0])
            begun = last.decode() if goes_on else self._piece.after
            if ids:
                yield Entries(self._state.keys.name, FROM_OVERFLOW, ids, flats, "backlog")

    def _alone(self) -> Iterator[Entries]:
        """What lies by itself, and was not met before."""
        cursor = b""
        while cursor != BEGIN:
            cursor, found = self._client.run(sweep.alone(self._state, cursor or BEGIN, self._piece))
            ids = [each for each in dict.fromkeys(found) if each not in self._seen]
            self._seen.update(ids)
            handles = [b"d:%b" % each for each in ids]
            told = [(each, known) for each, known in zip(ids, self._told(handles), strict=True) if known]
            if told:
                read = [entry_of(known.body) for _, known in told]
                entries = Entries(
                    self._state.keys.name, OUTSIDE, [each for each, _ in told], [row[1] for row in read], ""
                )
                entries.origins = [origin for origin, _ in read]
                _say(entries, [self._standing(b"d:%b" % each, known) for each, known in told])
                yield entries

    def _told(self, handles: Sequence[bytes]) -> list[Told | None]:
        """What the server says of these messages now."""
        found: list[Told | None] = []
        while len(found) < len(handles):
            found += self._client.run(sweep.states(self._state, handles[len(found) :]))
        return found

    def _standing(self, handle: bytes, told: Told | None) -> _Standing:
        """What is said of a message. Of one that was delivered while we read, the lease is not known."""
        now, lease = self._leases.now, self._leases.by_handle.get(handle)
        deliveries, error = (told.deliveries, told.last_error) if told else (0, "")
        if told and told.due_ms is not None:
            state = "delayed" if told.due_ms > now else "backlog"
            return _Standing(state, deliveries, told.due_ms, last_error=error)
        if told and told.state != "in_flight":
            return _Standing("backlog", deliveries, last_error=error)
        if lease is None:
            return _Standing("in_flight", deliveries, last_error=error)
        state = "in_flight" if lease.ends > now else "backlog"
        return _Standing(state, lease.deliveries, lease_until=lease.ends, last_error=lease.error or error)


def _piece(options: Reading, part: Part) -> Piece:
    """The ids that are wanted of a part."""
    every = Piece()
    after = [every.after if part.after == "-" else part.after]
    upto = [every.upto if part.until == "+" else part.until]
    if options.starting_timestamp:
        after.append(f"{options.starting_timestamp - 1}-{2**64 - 1}")
    if options.ending_timestamp:
        upto.append(f"{options.ending_timestamp}-{2**64 - 1}")
    return Piece(max(after, key=_order), min(upto, key=_order))


def _order(bound: str) -> EntryId:
    return entry_id(bound.encode())


def _say(entries: Entries, standings: Sequence[_Standing]) -> None:
    """Put what is said of each of the entries into columns."""
    columns = zip(*standings, strict=True)
    entries.states, entries.counts, entries.due, entries.lease_until, entries.errors = map(list, columns)
