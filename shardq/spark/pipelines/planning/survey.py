"""A survey of many tenants under one candidate: how many clean streams each has, and how long its messages wait.

Tenants are surveyed in chunks, whose results are added up. Needs numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shardq.planner.simulation import drawn_shards
from shardq.sharding import check_width, key_bytes, raw_scores
from shardq.spark.pipelines.planning.model import Load, bucket
from shardq.spark.pipelines.planning.rounds import Look

CHUNK: Final = 100_000
"""Tenants that are surveyed at once; each chunk of assumed tenants has floods of its own."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate: N streams, with M (`width`) per shard."""

    streams: int
    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_width(self.streams, self.width))  # frozen

    def __str__(self) -> str:
        return f"{self.streams}x{self.width}"


@dataclass(slots=True)
class Survey:
    """The counts for one candidate.

    `clean`, `shared` and `wait` count tenants and their loads by number of clean streams, by number of streams that
    they share with one flood, and by bucket of the wait. `stream` has the load of each stream.
    """

    candidate: Candidate
    clean: NDArray[np.float64] = field(init=False)
    shared: NDArray[np.float64] = field(init=False)
    wait: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    stream: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.clean = np.zeros((self.candidate.width + 1, 2))
        self.shared = np.zeros((self.candidate.width + 1, 2))
        self.stream = np.zeros(self.candidate.streams)

    def add(
        self,
        shards: NDArray[np.int64],
        loads: NDArray[np.float64],
        noisy: NDArray[np.int64],
        load: Load,
        dice: np.random.Generator,
    ) -> None:
        """Add tenants, one per row of *shards*, with their loads, beside the *noisy* shards."""
        streams, width = self.candidate.streams, self.candidate.width
        columns = shards.T
        held = np.bincount(noisy.ravel(), minlength=streams)
        first = np.bincount(noisy[:1].ravel(), minlength=streams)
        marks = _merged(np.add, (held == 0) + (width + 1) * first, columns)  # both sums in one pass
        self.clean += _counted(marks % (width + 1), loads, width + 1)
        if len(noisy):
            self.shared += _counted(marks // (width + 1), loads, width + 1)
        looks = load.looks(noisy, streams, dice)
        edges = [len(shards) * at // len(looks) for at in range(len(looks) + 1)]
        for look, begin, end in zip(looks, edges, edges[1:], strict=False):
            self._add_waits(look, columns[:, begin:end], loads[begin:end], load, dice)
        for column in columns:
            self.stream += np.bincount(column, loads, streams) / width

    def _add_waits(
        self,
        look: Look,
        columns: NDArray[np.int64],
        loads: NDArray[np.float64],
        load: Load,
        dice: np.random.Generator,
    ) -> None:
        """Add the waits of tenants that all write at one moment: each to the shortest stream of its shard.

        Of streams that are equally short, a tenant takes any.
        """
        order = np.lexsort((dice.random(len(look.lengths)), look.lengths))
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        numbers, places = np.unique(bucket(load.seconds(look.before[order])), return_inverse=True)
        waits = np.zeros((len(numbers), 2))
        np.add.at(waits, places, _counted(_merged(np.minimum, ranks, columns), loads, len(order)))
        for number, found in zip(numbers.tolist(), waits, strict=True):
            if found[0]:
                self.wait[number] = self.wait.get(number, 0) + found

    def rows(self) -> list[tuple[str, int, float, float]]:
        """The counts as rows (table, at, tenants, load), which can be added to those of other chunks."""
        rows = [
            *(("clean", at, *pair) for at, pair in enumerate(self.clean.tolist())),
            *(("shared", at, *pair) for at, pair in enumerate(self.shared.tolist())),
            *(("wait", at, *pair.tolist()) for at, pair in self.wait.items()),
            *(("stream", at, 0.0, load) for at, load in enumerate(self.stream.tolist())),
        ]
        return [(table, at, tenants, load) for table, at, tenants, load in rows if tenants or load]

    @classmethod
    def of(cls, candidate: Candidate, rows: list[tuple[str, int, float, float]]) -> Survey:
        """The survey of *candidate* from rows that were added up."""
        found = cls(candidate)
        for table, at, tenants, load in rows:
            if table == "stream":
                found.stream[at] = load
            elif table == "wait":
                found.wait[at] = np.array((tenants, load))
            else:
                getattr(found, table)[at] = tenants, load
        return found


def assumed(surveys: Sequence[Survey], first: int, count: int, load: Load, skew: float, seed: int) -> None:
    """Add to all *surveys* *count* tenants from number *first* on: random shards, loads that fall as 1 / rank^skew.

    The same numbers give the same tenants, whatever else is surveyed.
    """
    ranks: Any = np.arange(first + 1, first + count + 1, dtype=np.float64)
    loads = ranks**-skew
    for each in surveys:
        streams, width = each.candidate.streams, each.candidate.width
        dice = np.random.default_rng((seed, streams, width, first))
        noisy = drawn_shards(dice, load.noisy, streams, width)
        each.add(drawn_shards(dice, count, streams, width), loads, noisy, load, dice)


DEALT: Final = 1 << 17
"""How many scores of 8 bytes are handled at once: as many as a processor's cache holds."""


def named(
    surveys: Sequence[Survey], keys: Sequence[bytes], loads: NDArray[np.float64], load: Load, noisy: Sequence[bytes]
) -> None:
    """Add the tenants called *keys* to all *surveys*, with the shards that they are dealt, beside the *noisy* ones."""
    candidates = [each.candidate for each in surveys]
    floods, dealt = dealt_shards(noisy, candidates), dealt_shards(keys, candidates)
    dice = np.random.default_rng(crc32(keys[0]))
    for each, flood, shards in zip(surveys, floods, dealt, strict=True):
        each.add(shards, loads, flood, load, dice)


def dealt_shards(keys: Sequence[bytes], candidates: Sequence[Candidate]) -> list[NDArray[np.int64]]:
    """For each candidate the streams dealt to each key, in no order: `shardq.sharding.shard`, many at once.

    A stream's score does not depend on the number of streams, so one hash per key suffices for all candidates.
    """
    most = max(each.streams for each in candidates)
    some = max(1, DEALT // most)
    found: list[list[NDArray[np.int64]]] = [[np.empty((0, each.width), dtype=np.int64)] for each in candidates]
    for begin in range(0, len(keys), some):
        raw = b"".join([raw_scores(key_bytes(key), most) for key in keys[begin : begin + some]])
        scores = np.frombuffer(raw, dtype=">u8").astype(np.uint64).reshape(-1, most)
        for parts, shards in zip(found, _highest(scores, candidates), strict=True):
            parts.append(shards)
    return [np.concatenate(parts) for parts in found]


def _highest(scores: NDArray[np.uint64], candidates: Sequence[Candidate]) -> list[NDArray[np.int64]]:
    """For each candidate and row, the streams of the M highest among the first N scores.

    It goes from few streams to many: a stream that is among the highest of more streams is new, or was among the
    highest of fewer.
    """
    width = max(each.width for each in candidates)
    found: dict[Candidate, NDArray[np.int64]] = {}
    kept, before = np.empty((len(scores), 0), dtype=np.int64), 0
    for streams in sorted({each.streams for each in candidates}):
        new = np.broadcast_to(np.arange(before, streams), (len(scores), streams - before))
        kept = _best(scores, np.concatenate((kept, new), axis=1), width)
        found |= {each: _best(scores, kept, each.width) for each in candidates if each.streams == streams}
        before = streams
    return [found[each] for each in candidates]


def _best(scores: NDArray[np.uint64], among: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """For each row, the *count* stream numbers of *among* with the highest scores."""
    if among.shape[1] <= count:
        return among
    places = np.argpartition(np.take_along_axis(scores, among, axis=1), -count, axis=1)[:, -count:]
    return np.take_along_axis(among, places, axis=1)


def _merged(merge: np.ufunc, table: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each tenant, the *table*'s entries of its streams in one: their sum, or the least of them."""
    found: NDArray[np.int64] = table[columns[0]]
    for column in columns[1:]:
        merge(found, table[column], out=found)
    return found


def _counted(numbers: NDArray[np.int64], loads: NDArray[np.float64], size: int) -> NDArray[Any]:
    return np.stack((np.bincount(numbers, minlength=size), np.bincount(numbers, loads, size)), axis=1)
