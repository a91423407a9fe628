"""How long does a quiet tenant's message wait while others flood? Needs numpy.

It goes to the shortest stream of its shard, and waits for the deliveries that come before it (`rounds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.planner.odds import check_count
from shardq.spark.pipelines.planning.rounds import Look, poured, served_first, waiting_looks

LEAST: Final = 1e-4
GROWTH: Final = 1.02
"""The shortest wait that counts as one, in seconds; the ratio of a bucket's bounds, so waits are within 2 %."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a queue. ConfigError for a number out of its bounds.

    `noisy` tenants flood at a time and have `flood` messages waiting each, of which at most `admitted` in the shared
    streams (the admission window, by default that of new queues; 0: all of them). All workers take `service` messages
    a second, and the share `used` of that goes to messages that come in while the floods drain.
    """

    noisy: int
    flood: int = 10_000
    service: float = 1_000.0
    used: float = 0.5
    admitted: int = 1

    def __post_init__(self) -> None:
        for name in ("noisy", "flood", "admitted"):
            check_count(name, getattr(self, name), 0, 10**9)
        if not 0 < self.service < 1e9:
            raise ConfigError(f"service must be a positive number of messages per second, not {shown(self.service)}")
        if not 0 <= self.used < 1:
            raise ConfigError(f"used must be a share from 0 to less than 1, not {shown(self.used)}")

    def looks(self, noisy: NDArray[np.int64], streams: int, dice: np.random.Generator) -> list[Look]:
        """Look at the streams at a few moments while the *noisy* shards flood."""
        shards = noisy.tolist()
        if not shards:
            return [Look(np.zeros(streams), np.zeros(streams))]
        if 0 < self.admitted < self.flood:
            return served_first(streams, dice)
        return waiting_looks(poured(shards, streams, self.flood), dice)

    def seconds(self, before: NDArray[np.float64]) -> NDArray[np.float64]:
        """How long it takes until a message is delivered that so many deliveries come *before*."""
        return (before + 1) / (self.service * (1 - self.used))


def bucket(waits: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each wait in seconds; waits up to `LEAST` are in bucket 0."""
    return np.ceil(np.log(np.maximum(waits, LEAST) / LEAST) / log(GROWTH) - 1e-9).astype(np.int64)


def bucket_end(number: int) -> float:
    """The longest wait in a bucket, in seconds."""
    return float(LEAST * GROWTH**number)
