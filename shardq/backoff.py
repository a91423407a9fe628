"""How long to wait before the next try: a policy turns a count into seconds.

Used for the delay of a redelivery and between attempts to reconnect. Policies are values: they hold no state and no
source of randomness, so the caller passes a `random.Random`, a seeded one in tests.

>>> Exponential(base=0.5, cap=10, jitter="none")(4, Random())
4.0
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Literal, Protocol

from shardq.arguments import shown
from shardq.errors import ConfigError

_ENOUGH = 2**31  # doublings: keeps a huge count from overflowing the conversion to float


class Backoff(Protocol):
    """Any policy: `count` is 1 after the first failure, 2 after the second; the result is in seconds."""

    def __call__(self, count: int, random: Random) -> float:
        """Seconds to wait after failure number `count`."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same delay of `seconds`, 0 or more."""

    seconds: float = 1.0

    def __post_init__(self) -> None:
        _check_number("seconds", self.seconds, at_least=0.0)

    def __call__(self, count: int, random: Random) -> float:
        """`seconds`, whatever the count (from 1) and the randomness; ConfigError for a bad count."""
        _check_count(count)
        return float(self.seconds)


@dataclass(frozen=True, slots=True)
class Exponential:
    """A ceiling that grows by `factor` with each failure, from `base` seconds up to `cap` seconds.

    With full jitter the delay is uniform from 0 to the ceiling: it spreads clients that failed together better than
    adding noise to the ceiling does, at less work in total (source: AWS Architecture Blog, Brooker, "Exponential
    Backoff and Jitter", 2015). ConfigError unless 0 < base <= cap, factor >= 1, all finite, and jitter is "full" or
    "none".
    """

    base: float = 0.1
    factor: float = 2.0
    cap: float = 60.0
    jitter: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        _check_number("base", self.base, at_least=0.0)
        if self.base == 0:
            raise ConfigError("base must be more than 0 seconds: use Constant(0) for no delay")
        _check_number("factor", self.factor, at_least=1.0)
        _check_number("cap", self.cap, at_least=self.base)
        if self.jitter not in ("full", "none"):
            raise ConfigError(f'jitter must be "full" or "none", not {shown(self.jitter)}')

    def ceiling(self, count: int) -> float:
        """The longest delay, in seconds, after failure number `count` (from 1); ConfigError for a bad count."""
        _check_count(count)
        try:
            return min(float(self.cap), self.base * float(self.factor) ** min(count - 1, _ENOUGH))
        except OverflowError:
            return float(self.cap)

    def __call__(self, count: int, random: Random) -> float:
        """Seconds to wait after failure number `count` (from 1); `random` is used only for jitter."""
        ceiling = self.ceiling(count)
        return random.uniform(0.0, ceiling) if self.jitter == "full" else ceiling


def _check_number(name: str, value: float, *, at_least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number, not {type(value).__name__}")
    if not _is_finite(value) or value < at_least:
        raise ConfigError(f"{name} must be a finite number of at least {at_least:g}, not {shown(value)}")


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


def _check_count(count: int) -> None:
    if type(count) is not int or count < 1:
        raise ConfigError(f"a count must be an int of at least 1, not {shown(count)}")
