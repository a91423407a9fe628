"""How long a quiet message waits beside floods, for all streams of a queue at once. Needs numpy.

Streams are read in turns, one message each. A message behind b others in its stream is therefore delivered when that
stream had b + 1 turns; until then every other stream gave as many, or all that it held. So it waits for the sum over
the streams of min(what a stream holds, b) deliveries, and its own (processor sharing: Kleinrock, JACM 14(2), 1967).
A tenant's message goes to the shortest stream of its shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardq.arguments import shown
from shardq.errors import ConfigError

LEAST: Final = 1e-4
GROWTH: Final = 1.02
"""The shortest wait that is told from none, in seconds; the ratio of a bucket's bounds: waits are told within 2 %."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a queue is to bear. ConfigError for what cannot be.

    `noisy` tenants flood at a time and have `flood` messages waiting each, of which at most `admitted` in the shared
    streams (the admission window; 0: all of them). All workers take `service` messages a second, and the share
    `used` of that goes to messages that come in while the floods drain.
    """

    noisy: int
    flood: int = 10_000
    service: float = 1_000.0
    used: float = 0.5
    admitted: int = 0

    def __post_init__(self) -> None:
        for name in ("noisy", "flood", "admitted"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= 10**9:
                raise ConfigError(f"{name} must be an int from 0 to 1,000,000,000, not {shown(value)}")
        if not 0 < self.service < 1e9:
            raise ConfigError(f"service must be a positive number of messages per second, not {shown(self.service)}")
        if not 0 <= self.used < 1:
            raise ConfigError(f"used must be a share from 0 to less than 1, not {shown(self.used)}")

    def waits(self, noisy: NDArray[np.int64], streams: int) -> NDArray[np.float64]:
        """By stream, the seconds that a message waits which is written to its end while the *noisy* shards flood."""
        shared = min(self.flood, self.admitted) if self.admitted else self.flood
        held = np.bincount(noisy.ravel(), minlength=streams) * (shared / noisy.shape[1])
        return (turns(held) + 1) / (self.service * (1 - self.used))


def turns(held: NDArray[np.float64]) -> NDArray[np.float64]:
    """By stream, the deliveries before that of a message behind all that its stream holds."""
    order = np.argsort(held)
    rising = held[order]
    before = np.cumsum(rising) + rising * (len(held) - 1 - np.arange(len(held)))
    found = np.empty_like(before)
    found[order] = before
    return found


def bucket(waits: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each wait in seconds: what is up to `LEAST` is in bucket 0."""
    return np.ceil(np.log(np.maximum(waits, LEAST) / LEAST) / log(GROWTH) - 1e-9).astype(np.int64)


def bucket_end(number: int) -> float:
    """The longest wait in a bucket, in seconds."""
    return float(LEAST * GROWTH**number)
