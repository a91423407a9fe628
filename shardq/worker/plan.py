"""The settings of a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict

from shardq.arguments import MAX_BLOCK, seconds
from shardq.backoff import Backoff, Exponential
from shardq.errors import ConfigError
from shardq.ops.read import checked_block

RETRY = Exponential(base=1.0, cap=600.0)
MAX_CONCURRENCY = 100_000
Alive: TypeAlias = str | Path | Callable[[], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """A worker's settings; times are seconds.

    `concurrency`: handlers that run at once, at most. `read_ahead`: messages that may wait here for a free one; for
    handlers that take less than a round trip. `time_limit`: a handler that takes longer has failed. `grace`: how long
    `stop` waits for handlers before their messages are given back. `backoff`: the delay of a message that failed, by
    its delivery count. `visibility_timeout`: of the leases, that are extended while handlers run; else the queue's.
    `alive`: a file to touch, or a function to call in a thread, about each second while the worker goes round.
    `signals`: in the main thread, stop on SIGTERM and SIGINT, and leave at once on a second one. ConfigError for a bad
    one.
    """

    concurrency: int = 64
    read_ahead: int = 0
    time_limit: float | None = None
    grace: float = 25.0
    backoff: Backoff = RETRY
    visibility_timeout: float | None = None
    alive: Alive | None = None
    signals: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _whole("concurrency", self.concurrency, 1)
        _whole("read_ahead", self.read_ahead, 0)
        seconds("grace", self.grace, 0, MAX_BLOCK)
        checked_block(0, self.visibility_timeout)
        if self.time_limit is not None:
            seconds("time_limit", self.time_limit, 0.001, MAX_BLOCK)
        if not callable(self.backoff):
            raise ConfigError(f"backoff must be a policy such as shardq.backoff.Exponential(), not {self.backoff!r}")
        if self.alive is not None and not (isinstance(self.alive, (str, Path)) or callable(self.alive)):
            raise ConfigError(f"alive must be the path of a file or a function, not {self.alive!r}")


class PlanSettings(TypedDict, total=False):
    """The keyword arguments of `Worker` and `AsyncWorker`: the fields of `Plan`, any of them."""

    concurrency: int
    read_ahead: int
    time_limit: float | None
    grace: float
    backoff: Backoff
    visibility_timeout: float | None
    alive: Alive | None
    signals: bool


def _whole(name: str, value: int, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_CONCURRENCY:
        raise ConfigError(f"{name} must be a whole number from {low} to {MAX_CONCURRENCY}, not {value!r}")
