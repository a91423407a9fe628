"""The messages that a queue holds, as a table with the state of each message."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError
from shardq.ops import scan
from shardq.ops.admin import statistics
from shardq.ops.scan import BODIES, Index, entry_id
from shardq.ops.state import QueueState
from shardq.spark.entries import Entries, batch_of, picked
from shardq.spark.options import Reading, listed
from shardq.spark.pages import pages
from shardq.spark.parts import Part

LARGE = 10_000
"""So many messages in the bodies are worth several tasks."""


def live_parts(client: Client, state: QueueState, options: Reading, most: int) -> list[Part]:
    """The streams in groups with about as many messages each, without streams that have none of the wanted states."""
    stats = client.run(statistics(state))
    chosen = {int(number) for number in listed(options.streams)}
    if beyond := sorted(number for number in chosen if number >= len(stats.streams)):
        raise ConfigError(f"queue {state.keys.name!r} has {len(stats.streams)} streams, so there is no {beyond[0]}")
    weights = {str(at): count for at, count in enumerate(stats.streams) if not chosen or at in chosen}
    if not chosen:
        weights[BODIES] = stats.delayed + stats.held_back
    if options.states == ("backlog",):
        weights = {place: count for place, count in weights.items() if count or place == BODIES}
    pieces = 0
    if weights.get(BODIES, 0) > LARGE:
        pieces = max(1, most * weights.pop(BODIES) // max(1, sum(weights.values()) + stats.delayed + stats.held_back))
    groups: list[list[str]] = [[] for _ in range(min(max(1, most - pieces), len(weights)))]
    loads = [0] * len(groups)
    for place in sorted(weights, key=lambda place: -weights[place]):
        least = min(range(len(groups)), key=lambda at: (loads[at], len(groups[at])))
        groups[least].append(place)
        loads[least] += weights[place]
    parts = [Part(state.keys.name, tuple(group)) for group in groups]
    return parts + _ranges(client, state, pieces) if pieces else parts


def _ranges(client: Client, state: QueueState, pieces: int) -> list[Part]:
    """The stream of the bodies in ranges of about the same size. What is held back may be nearly all that there is."""
    ends = client.run(scan.cuts(state, state.keys.bodies, pieces))
    after = ["-", *(f"{end}-{2**64 - 1}" for end in ends)]
    return [Part(state.keys.name, (BODIES,), *each) for each in zip(after, (*ends, "+"), strict=True)]


def read_live(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: Part
) -> Iterator[pa.RecordBatch]:
    """The messages of the streams of *part*, page by page."""
    index = client.run(scan.index(state, part.places))
    keys = frozenset(key.encode() for key in listed(options.shard_keys))
    start = f"{options.starting_timestamp - 1}-{2**64 - 1}" if options.starting_timestamp else "-"
    until = str(options.ending_timestamp or "+")
    for place in part.places:
        key = state.keys.bodies if place == BODIES else state.keys.stream(int(place))
        first, last = _within(start, until, part) if place == BODIES else (start, until)
        for rows in pages(client, state, key, first, last, options.fetch_size):
            entries = standing(client, state, index, place, rows)
            entries = picked(entries, options.states, keys)
            if len(entries):
                yield batch_of(entries, schema)


def standing(client: Client, state: QueueState, index: Index, place: str, rows: Sequence[Any]) -> Entries:
    """The entries *rows* with the state of each."""
    found = Entries(state.keys.name, place, [row[0] for row in rows], [row[1] for row in rows], "backlog")
    old = 0
    if place != BODIES:
        old = bisect_right(rows, index.cursors[place], key=lambda row: entry_id(row[0]))
    if not old and place.encode() not in index.touched:
        return found  # nothing here was ever delivered, as in most of a backlog
    head = place.encode() + b":"
    handles = [head + each for each in found.ids]
    leases, found.due = [*map(index.leases.get, handles)], [*map(index.delayed.get, handles)]
    found.lease_until = [lease and lease[0] for lease in leases]
    delivered = _delivered(client, state, index, [each for each in handles[:old] if _is_unknown(index, each)])
    found.states = [
        _state(index.now, lease, due, handle in delivered)
        for handle, lease, due in zip(handles, leases, found.due, strict=True)
    ]
    known = client.run(scan.attempts(state, handles)) if index.attempts is None else index.attempts
    noted = [known.get(handle, (0, "")) for handle in handles]
    found.counts = [lease[1] if lease else note[0] for lease, note in zip(leases, noted, strict=True)]
    found.errors = [note[1] for note in noted]
    return found


def _within(start: str, until: str, part: Part) -> tuple[str, str]:
    """The ids after which and up to which a part of the bodies is read, given those of the whole table."""
    return max(start, part.after, key=_order), min(until, part.until, key=_order)


def _order(bound: str) -> tuple[float, int]:
    """What a bound of a range sorts by: an id, a time, or "-" and "+" for all that there is."""
    if bound in ("-", "+"):
        return (-math.inf if bound == "-" else math.inf), 0
    ms, _, number = bound.partition("-")
    return int(ms), int(number or 2**64)


def _is_unknown(index: Index, handle: bytes) -> bool:
    return handle not in index.leases and handle not in index.delayed


def _delivered(client: Client, state: QueueState, index: Index, handles: Sequence[bytes]) -> set[bytes]:
    """Those of *handles* that were delivered while we were reading.

    Their stream's cursor has passed them, and they were neither leased nor delayed when we looked, nor given back.
    """
    if handles and index.returned is None:
        index.returned = client.run(scan.given_back(state, [*index.cursors]))
    return {*handles} - (index.returned or set())


def _state(now: int, lease: tuple[int, int] | None, due: int | None, is_delivered: bool) -> str:
    """The state of one message."""
    if lease:
        return "in_flight" if lease[0] > now else "backlog"
    if due is not None:
        return "delayed" if due > now else "backlog"
    return "in_flight" if is_delivered else "backlog"
