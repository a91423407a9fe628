"""What is compared: orders of delivery, each as a model, and those that the queue can do also on a real server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.fairness.disciplines import Discipline, Fifo, Ring, Rings, Sharded
from benchmarks.fairness.window import Windowed, divided, fixed

SHAPES = ((16, 2), (64, 6), (256, 4))
FLOODERS = (1, 4, 20, 100)

Model = Callable[[int, int, str], Discipline]

IDEAL = "ideal fair queueing"
PLAIN = "plain FIFO"
WINDOW = "window 1"


@dataclass(frozen=True, slots=True)
class Contender:
    """One order: its model by N, M and salt, and the queue's settings for it; None if the queue has no such order."""

    name: str
    model: Model
    settings: dict[str, Any] | None = None

    def on_server(self, n: int, m: int) -> dict[str, Any]:
        """The settings of a queue with this order."""
        return {"streams": n, "streams_per_shard": m} | (self.settings or {})


CONTENDERS = (
    Contender(IDEAL, lambda n, m, salt: Ring()),
    Contender(PLAIN, lambda n, m, salt: Fifo(), {"streams": 1, "streams_per_shard": 1, "window": 0}),
    Contender("shuffle sharding alone", lambda n, m, salt: Sharded(n, m, salt=salt), {"window": 0}),
    Contender("round robin inside each stream", lambda n, m, salt: Rings(n, m, salt=salt)),
    Contender(WINDOW, lambda n, m, salt: Windowed(n, m, fixed(1), salt=salt), {"window": 1}),
    Contender("window 2", lambda n, m, salt: Windowed(n, m, fixed(2), salt=salt), {"window": 2}),
    Contender("window 3", lambda n, m, salt: Windowed(n, m, fixed(3), salt=salt)),
    Contender("window 6", lambda n, m, salt: Windowed(n, m, fixed(6), salt=salt)),
    Contender("window 8 / active tenants", lambda n, m, salt: Windowed(n, m, divided(8), salt=salt)),
    Contender("window N / active tenants", lambda n, m, salt: Windowed(n, m, divided(n), salt=salt)),
)

SERVED = tuple(each for each in CONTENDERS if each.settings is not None)
"""The orders that the real queue has."""
