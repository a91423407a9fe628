"""What people change while the hour runs: the size of queues, limits, pauses. At the end all is as it was declared."""

from __future__ import annotations

import random
import threading
from typing import Any, Final

from shardq import Limits
from tests.soak.hour.dealer import Fault, Probes, Strike
from tests.soak.hour.world import COMMON, PARTITIONS, World

SHORT: Final = (0.2, 2.0)
"""Seconds that a pause lasts, at least and at most."""

STREAMS: Final = (1, 4, 8, 16)
"""How many streams a queue is given."""


class Changes:
    """Changes of queues."""

    def __init__(self, world: World, probes: Probes, rng: random.Random) -> None:
        self._world, self._probes, self._rng, self._never = world, probes, rng, threading.Event()

    def deck(self, *, is_long: bool) -> dict[str, Fault]:
        """All of them, by name; a short run does without what takes long."""
        found: dict[str, Fault] = {
            "streams resized": self.streams_resized,
            "queue paused": self.queue_paused,
            "limits changed": self.limits_changed,
        }
        return found | ({"partitions resized": self.partitions_resized} if is_long else {})

    def streams_resized(self, strike: Strike) -> None:
        """A queue gets more streams, or fewer."""
        name = self._any()
        self._queue(name).resize(self._rng.choice(STREAMS))
        strike.over(name, [name])

    def partitions_resized(self, strike: Strike) -> None:
        """A queue gets more partitions, or fewer: tenants get other homes."""
        self._queue("parted").resize(partitions=self._rng.randint(2, PARTITIONS))
        strike.over("parted", ["parted"])

    def queue_paused(self, strike: Strike) -> None:
        """Nothing of a queue, or of one of its tenants, is delivered for a while."""
        name = self._any()
        queue, tenant = self._queue(name), self._rng.choice((None, "tenant-0"))
        queue.pause(tenant)
        self._never.wait(self._rng.uniform(*SHORT))
        queue.resume(tenant)
        strike.over(name, [name])

    def limits_changed(self, strike: Strike) -> None:
        """Tenants have other limits and weights."""
        queue, name = self._queue("fair"), f"plan-{self._rng.randrange(3)}"
        limits = Limits(max_in_flight=self._rng.choice((1, 5, 0)), rate=self._rng.choice((5.0, 50.0, 0.0)))
        queue.set_limits({name: self._rng.choice((limits, "small", "large"))})
        queue.set_weights({name: self._rng.randint(1, 5)})
        strike.over("fair", ["fair"])

    def undo(self) -> None:
        """Let each queue have what it was declared with."""
        for site in self._world.sites:
            for name in site.queues:
                self._queue(name).resize(COMMON["streams"])

    def _any(self) -> str:
        return self._rng.choice([each for site in self._world.sites for each in site.queues])

    def _queue(self, name: str) -> Any:
        return self._probes.patient(name).queue(name, create=False)
