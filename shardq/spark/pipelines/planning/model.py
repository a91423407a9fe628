"""How long does a quiet tenant's message wait while others flood? Computed for all streams at once. Needs numpy.

Reads go round the streams and take one message of each. A message behind b others in its stream is therefore delivered
after b rounds. By then each other stream has delivered b messages, or all that it held. So the message waits for the
sum, over the streams, of min(what a stream holds, b) deliveries (processor sharing: Kleinrock, JACM 14(2), 1967).
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
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= 10**9:
                raise ConfigError(f"{name} must be an int from 0 to 1,000,000,000, not {shown(value)}")
        if not 0 < self.service < 1e9:
            raise ConfigError(f"service must be a positive number of messages per second, not {shown(self.service)}")
        if not 0 <= self.used < 1:
            raise ConfigError(f"used must be a share from 0 to less than 1, not {shown(self.used)}")

    def waits(self, noisy: NDArray[np.int64], streams: int) -> NDArray[np.float64]:
        """For each stream, how many seconds a message waits that is written to it while the *noisy* shards flood."""
        shared = min(self.flood, self.admitted) if self.admitted else self.flood
        held = np.bincount(noisy.ravel(), minlength=streams) * (shared / noisy.shape[1])
        return (deliveries_before(held) + 1) / (self.service * (1 - self.used))


def deliveries_before(held: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each stream, how many deliveries come before that of a message at its end; *held* are stream lengths."""
    order = np.argsort(held)
    rising = held[order]
    before = np.cumsum(rising) + rising * (len(held) - 1 - np.arange(len(held)))
    found = np.empty_like(before)
    found[order] = before
    return found


def bucket(waits: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each wait in seconds; waits up to `LEAST` are in bucket 0."""
    return np.ceil(np.log(np.maximum(waits, LEAST) / LEAST) / log(GROWTH) - 1e-9).astype(np.int64)


def bucket_end(number: int) -> float:
    """The longest wait in a bucket, in seconds."""
    return float(LEAST * GROWTH**number)
