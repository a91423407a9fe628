"""Backoff policies: how many seconds to wait before the next try, given the number of failures.

They are used for the delay of a redelivery and for the pauses between tries of a call. A policy has no state and no
source of randomness: the caller passes a `random.Random`, in tests a seeded one.

>>> Exponential(base=0.5, cap=10, jitter="none")(4, Random())
4.0
"""

from __future__ import annotations

import inspect
from math import isfinite
from random import Random
from typing import Literal, Protocol

import msgspec

from shardq.arguments import one_of, shown
from shardq.errors import ConfigError

_MAX_EXPONENT = 2**31  # bounds the exponent, so that a huge count does not overflow a float


class Backoff(Protocol):
    """A backoff policy. `count` is 1 after the first failure, 2 after the second. The result is in seconds.

    >>> def linear(count, random):
    ...     return 5.0 * count
    >>> linear(3, None)
    15.0
    """

    def __call__(self, count: int, random: Random) -> float:
        """Return how many seconds to wait after failure number `count`."""
        ...


class Constant(msgspec.Struct, frozen=True):
    """The same delay each time, of `seconds`, which is 0 or more.

    ConfigError unless it is.

    >>> from random import Random
    >>> Constant(30)(1, Random())
    30.0
    """

    seconds: float = 1.0

    def __post_init__(self) -> None:
        _check_number("seconds", self.seconds, at_least=0.0)

    def __call__(self, count: int, random: Random) -> float:
        """Return `seconds`, whatever `count` and `random` are. ConfigError for a bad count."""
        _check_count(count)
        return float(self.seconds)


class Exponential(msgspec.Struct, frozen=True):
    """Exponential backoff: the ceiling grows by `factor` with each failure, from `base` seconds to `cap` seconds.

    With full jitter the delay is uniform from 0 to the ceiling. This spreads clients that failed together better than
    adding noise to the ceiling, with less work in total (source: AWS Architecture Blog, Brooker, "Exponential Backoff
    and Jitter", 2015). Without jitter the delay is the ceiling. ConfigError unless 0 < base <= cap, factor >= 1, all
    finite, and `jitter` is "full" or "none".

    >>> from random import Random
    >>> backoff = Exponential(base=0.5, cap=10, jitter="none")
    >>> [backoff(count, Random()) for count in (1, 2, 3, 9)]
    [0.5, 1.0, 2.0, 10.0]
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
        one_of("jitter", self.jitter, ("full", "none"))

    def ceiling(self, count: int) -> float:
        """Return the longest delay, in seconds, after failure number `count` (from 1). ConfigError for a bad count.

        >>> Exponential(base=1, factor=3, cap=60).ceiling(4)
        27.0
        """
        _check_count(count)
        try:
            return min(float(self.cap), self.base * float(self.factor) ** min(count - 1, _MAX_EXPONENT))
        except OverflowError:
            return float(self.cap)

    def __call__(self, count: int, random: Random) -> float:
        """Return how many seconds to wait after failure number `count` (from 1). `random` is used only for jitter."""
        ceiling = self.ceiling(count)
        return random.uniform(0.0, ceiling) if self.jitter == "full" else ceiling


def check_backoff(backoff: object) -> None:
    """ConfigError unless *backoff* can be called as a `Backoff` is: otherwise each failure would be one more."""
    wanted = "backoff must be a function (count, random) -> seconds, such as shardq.backoff.Exponential()"
    if isinstance(backoff, type):
        raise ConfigError(f"{wanted}; {backoff.__name__} is a class: make one of it")
    if not callable(backoff):
        raise ConfigError(f"{wanted}, not {shown(backoff)}")
    if inspect.iscoroutinefunction(backoff) or inspect.iscoroutinefunction(backoff.__call__):
        raise ConfigError(f"{wanted}; this one is async")
    try:
        signature = inspect.signature(backoff)
    except Exception:  # noqa: BLE001 (some functions written in C do not tell; others are objects that refuse all)
        return
    try:
        signature.bind(1, None)
    except TypeError as error:
        raise ConfigError(f"{wanted}; this one cannot be called so: {error}") from None


def _check_number(name: str, value: float, *, at_least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number, not {type(value).__name__}")
    if not _is_finite(value) or value < at_least:
        raise ConfigError(f"{name} must be a finite number of at least {at_least:g}, not {shown(value)}")


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def _check_count(count: int) -> None:
    if type(count) is not int or count < 1:
        raise ConfigError(f"a count must be an int of at least 1, not {shown(count)}")
