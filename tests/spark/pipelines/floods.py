"""How long quiet tenants wait on a real queue while others flood, in deliveries, and what the plan's model says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardq import Client
from shardq.sharding import shard
from shardq.spark.pipelines.planning.model import Load

NUMBERS = count()


@dataclass(frozen=True)
class Ground:
    """A queue with *floods* that each have *flood* messages waiting, all the time.

    The tenants that wait are those that have a stream without a flood, or (`blocked`) those that have none.
    """

    streams: int
    width: int
    floods: int
    flood: int
    window: int
    trials: int
    blocked: bool = False

    def __str__(self) -> str:
        tenants = "blocked" if self.blocked else "isolated"
        return f"{self.streams}x{self.width}-floods-{self.floods}-window-{self.window}-{tenants}"

    def keys(self, seed: int) -> list[str]:
        """The shard keys that flood."""
        return [f"flood-{seed}-{number}" for number in range(self.floods)]

    def tenants(self, seed: int, name: str) -> Iterator[str]:
        """Quiet tenants called *name* of the kind that waits here, one after the other."""
        taken = {stream for each in self.keys(seed) for stream in shard(each, self.streams, self.width)}
        for number in count():
            key = f"{name}-{seed}-{number}"
            if taken.issuperset(shard(key, self.streams, self.width)) == self.blocked:
                yield key

    def predicted(self, seed: int, tenants: int = 1000) -> NDArray[np.float64]:
        """The waits of many quiet tenants as the plan has them."""
        floods = np.array([shard(each, self.streams, self.width) for each in self.keys(seed)])
        load, dice, waits = Load(self.floods, self.flood, admitted=self.window), np.random.default_rng(seed), []
        shards = [shard(key, self.streams, self.width) for key in islice(self.tenants(seed, "model"), tenants)]
        for look in load.looks(floods, self.streams, dice):
            waits += [look.before[min(each, key=look.lengths.__getitem__)] for each in shards]
        return np.array(waits)


GROUNDS = (
    Ground(64, 2, 15, 40, 0, 200),
    Ground(64, 4, 10, 40, 0, 200),
    Ground(256, 2, 60, 12, 0, 80),
    Ground(64, 2, 15, 40, 0, 10, blocked=True),
    Ground(16, 2, 20, 20, 0, 10, blocked=True),
    Ground(64, 2, 15, 20, 1, 200),
    Ground(64, 4, 10, 20, 1, 200),
    Ground(256, 2, 60, 6, 1, 120),
    Ground(64, 2, 15, 20, 1, 100, blocked=True),
    Ground(16, 2, 20, 10, 1, 100, blocked=True),
)


@dataclass
class Field:
    """A real queue on which a *ground* is played: floods are refilled, so that they always have as much waiting."""

    client: Client
    ground: Ground
    seed: int
    rng: random.Random
    unread: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        each = self.ground
        name = f"floods-{next(NUMBERS)}"
        self.queue: Any = self.client.queue(
            name, streams=each.streams, streams_per_shard=each.width, window=each.window, visibility_timeout=3600
        )
        self.unread = Counter(dict.fromkeys(each.keys(self.seed), each.flood))
        self.refill()
        self.read(3 * each.floods)  # by now the floods have found their places
        self.refill()

    def refill(self) -> None:
        """Write to each flood what was read of it, in turns."""
        left = +self.unread
        self.unread.clear()
        while left:
            keys = list(left)
            self.rng.shuffle(keys)
            self.queue.write_many([("flood", key) for key in keys])
            left -= Counter(keys)

    def read(self, times: int) -> None:
        """Read so many messages, one by one."""
        for _ in range(times):
            self.took()

    def took(self) -> str:
        """Read one message; its shard key."""
        key = self.queue.read().shard_key
        if key in self.keys:
            self.unread[key] += 1
        return str(key)

    @property
    def keys(self) -> set[str]:
        return set(self.ground.keys(self.seed))

    def wait(self, key: str) -> int:
        """How many messages are delivered before one of *key* that is written now."""
        self.refill()
        self.read(self.rng.randrange(self.ground.floods))
        self.queue.write("quiet", shard_key=key)
        waited = 0
        while self.took() != key:
            waited += 1
        return waited

    def waits(self) -> NDArray[np.float64]:
        """The waits of as many quiet tenants as there are trials."""
        keys = islice(self.ground.tenants(self.seed, "real"), self.ground.trials)
        return np.array([self.wait(key) for key in keys], dtype=np.float64)
