"""Many tenants under one candidate: how many clean streams each has beside the floods, and how long it waits.

Tenants are surveyed in chunks, and what chunks found adds up. Needs numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardq.planner.simulation import drawn_shards
from shardq.sharding import check_width, key_bytes, raw_scores
from shardq.spark.pipelines.planning.model import Load, bucket

CHUNK: Final = 100_000
"""Tenants that are surveyed at once; each chunk of assumed tenants has floods of its own."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """N streams, M to a shard."""

    streams: int
    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_width(self.streams, self.width))  # frozen

    def __str__(self) -> str:
        return f"{self.streams}x{self.width}"


@dataclass(slots=True)
class Survey:
    """What was found of one candidate.

    Tenants and their loads by number of clean streams, by number of streams shared with one flood and by bucket of the
    wait; loads by stream.
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

    def add(self, shards: NDArray[np.int64], loads: NDArray[np.float64], noisy: NDArray[np.int64], load: Load) -> None:
        """Add tenants, one per row of *shards*, with their loads, beside the *noisy* shards."""
        streams, width = self.candidate.streams, self.candidate.width
        flooded = np.bincount(noisy.ravel(), minlength=streams) > 0
        self.clean += _counted(width - flooded[shards].sum(axis=1), loads, width + 1)
        if len(noisy):
            first: Any = np.zeros(streams, dtype=bool)
            first[noisy[0]] = True
            self.shared += _counted(first[shards].sum(axis=1), loads, width + 1)
        numbers = bucket(load.waits(noisy, streams))[shards].min(axis=1)
        found = _counted(numbers, loads, int(numbers.max()) + 1)
        for number in np.flatnonzero(found[:, 0]):
            self.wait[int(number)] = self.wait.get(int(number), 0) + found[number]
        self.stream += np.bincount(shards.ravel(), np.repeat(loads / width, width), streams)

    def rows(self) -> list[tuple[str, int, float, float]]:
        """As rows (table, at, tenants, load), which add up with those of other chunks."""
        rows = [
            *(("clean", at, *pair) for at, pair in enumerate(self.clean.tolist())),
            *(("shared", at, *pair) for at, pair in enumerate(self.shared.tolist())),
            *(("wait", at, *pair.tolist()) for at, pair in self.wait.items()),
            *(("stream", at, 0.0, load) for at, load in enumerate(self.stream.tolist())),
        ]
        return [(table, at, tenants, load) for table, at, tenants, load in rows if tenants or load]

    @classmethod
    def of(cls, candidate: Candidate, rows: list[tuple[str, int, float, float]]) -> Survey:
        """From rows that were summed."""
        found = cls(candidate)
        for table, at, tenants, load in rows:
            if table == "stream":
                found.stream[at] = load
            elif table == "wait":
                found.wait[at] = np.array((tenants, load))
            else:
                getattr(found, table)[at] = tenants, load
        return found


def assumed(survey: Survey, first: int, count: int, load: Load, skew: float, seed: int) -> None:
    """Add *count* tenants from number *first* on, with shards drawn at random and loads that fall as 1 / rank^skew.

    The same numbers give the same tenants, whatever else is surveyed.
    """
    streams, width = survey.candidate.streams, survey.candidate.width
    dice = np.random.default_rng((seed, streams, width, first))
    noisy = drawn_shards(dice, load.noisy, streams, width)
    ranks: Any = np.arange(first + 1, first + count + 1, dtype=np.float64)
    survey.add(drawn_shards(dice, count, streams, width), ranks**-skew, noisy, load)


DEALT: Final = 10_000
"""Tenants that are dealt to at once: their scores take 8 bytes for each stream."""


def named(
    surveys: Sequence[Survey], keys: Sequence[bytes], loads: NDArray[np.float64], load: Load, noisy: Sequence[bytes]
) -> None:
    """Add the tenants called *keys* to all *surveys*, with the shards that they are dealt, beside the *noisy* ones."""
    floods = {id(each): dealt_shards(noisy, [each.candidate])[0] for each in surveys}
    for begin in range(0, len(keys), DEALT):
        dealt = dealt_shards(keys[begin : begin + DEALT], [each.candidate for each in surveys])
        for each, shards in zip(surveys, dealt, strict=True):
            each.add(shards, loads[begin : begin + DEALT], floods[id(each)], load)


def dealt_shards(keys: Sequence[bytes], candidates: Sequence[Candidate]) -> list[NDArray[np.int64]]:
    """For each candidate the streams dealt to each key, in no order: `shardq.sharding.shard`, many at once.

    A stream's score does not depend on how many there are, so one hash per key does for all.
    """
    most = max(each.streams for each in candidates)
    raw = b"".join(raw_scores(key_bytes(key), most) for key in keys)
    scores = np.frombuffer(raw, dtype=">u8").astype(np.uint64).reshape(len(keys), most)
    return [
        np.argpartition(scores[:, : each.streams], each.streams - each.width, axis=1)[:, each.streams - each.width :]
        for each in candidates
    ]


def _counted(numbers: NDArray[np.int64], loads: NDArray[np.float64], size: int) -> NDArray[Any]:
    return np.stack((np.bincount(numbers, minlength=size), np.bincount(numbers, loads, size)), axis=1)
