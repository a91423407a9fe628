"""The limits of a shard key, and plans of limits that many share."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shardq.arguments import rate, whole

MAX_WEIGHT: Final = 100


class Limits(msgspec.Struct, frozen=True):
    """The limits of one shard key, or of a parent with all its children, besides the settings of the queue.

    None is what the queue's settings say for every shard key; 0 is no limit. `max_in_flight` is how many messages may
    be in flight. `rate` is how many may be delivered in a second, `burst` how many of these at once; without a burst,
    the number of one second. ConfigError for a bad number.

    >>> Limits(max_in_flight=3, rate=10)
    Limits(max_in_flight=3, rate=10, burst=None)
    """

    max_in_flight: int | None = None
    rate: float | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.max_in_flight is not None:
            whole("max_in_flight", self.max_in_flight, 0, 2**40)
        if self.rate is not None:
            rate("rate", self.rate)
        if self.burst is not None:
            whole("burst", self.burst, 0, 1_000_000, why="0: as many as in one second")


class Plan(Limits, frozen=True):
    """Limits and a `weight` (1 to 100) that many shard keys share by a name. `tenants` is how many are on the plan.

    ConfigError for a bad number.

    `Queue.plans` returns them.

    >>> Plan(rate=50, weight=2).settings()
    {'rate': 50, 'weight': 2}
    """

    weight: int = 1
    tenants: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        Limits.__post_init__(self)
        whole("weight", self.weight, 1, MAX_WEIGHT)

    def settings(self) -> dict[str, Any]:
        """Return what `set_plan` takes to make it again: the numbers that are not as usual. It raises nothing."""
        named = {"max_in_flight": self.max_in_flight, "rate": self.rate, "burst": self.burst}
        found = {name: number for name, number in named.items() if number is not None}
        return found if self.weight == 1 else found | {"weight": self.weight}
