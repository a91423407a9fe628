"""The settings of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from shardq.arguments import MAX_BLOCK, check_known, flag, function, one_of, path, seconds, shown, whole
from shardq.backoff import Backoff, Exponential, check_backoff
from shardq.errors import ConfigError
from shardq.ops.read.read import checked_wanted

RETRY = Exponential(base=1.0, cap=600.0)
MAX_CONCURRENCY = 100_000
Until: TypeAlias = Literal["empty"]
Alive: TypeAlias = str | Path | Callable[[], object]
OnDead: TypeAlias = Callable[[Any, str], object]
"""Called with a `Delivery` or an `AsyncDelivery`, and why its message is a dead letter."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """A worker's settings; times are seconds.

    `concurrency`: how many handlers may run at once. `read_ahead`: how many messages may wait in the worker for a free
    handler at most, while handlers take less than 10 ms on average: it saves them a round trip. `time_limit`: a
    handler that takes longer has failed. `grace`: how long `stop` waits for handlers before it gives their messages
    back. `backoff`: the delay of a message that failed, by its delivery count. `visibility_timeout`: how long leases
    last, which are extended while handlers run (the queue's setting). `alive`: a file to touch, or a function to call
    in a thread, about each second while the worker does not hang. `signals`: whether SIGTERM, SIGINT and SIGHUP stop
    the worker, and a second one of the first two ends the process at once, for all workers if one runs in the main
    thread; None: yes, unless an AsyncWorker is awaited in a loop whose program has signal handlers of its own.
    `on_dead`: a function that is called with the delivery and the reason when a message of this worker has become a
    dead letter (it may be a coroutine function), apart from all else, in one call after the other; what
    it raises is logged. `until`: with "empty" the worker ends when nothing can be delivered, nothing is in flight and
    nothing waits for its next try, as tests and cron jobs want; delayed messages and calls of unknown tasks do not keep
    it. ConfigError for a bad setting.
    """

    concurrency: int = 64
    read_ahead: int = 0
    time_limit: float | None = None
    grace: float = 25.0
    backoff: Backoff = RETRY
    visibility_timeout: float | None = None
    alive: Alive | None = None
    signals: bool | None = None
    on_dead: OnDead | None = None
    until: Until | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        whole("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        whole("read_ahead", self.read_ahead, 0, MAX_CONCURRENCY)
        seconds("grace", self.grace, 0, MAX_BLOCK)
        checked_wanted(0, self.visibility_timeout, None)
        if self.time_limit is not None:
            seconds("time_limit", self.time_limit, 0.001, MAX_BLOCK)
        check_backoff(self.backoff)
        if isinstance(self.alive, (str, Path)):
            path("alive", self.alive)
        elif not (self.alive is None or callable(self.alive)):
            raise ConfigError(f"alive must be the path of a file or a function, not {shown(self.alive)}")
        if self.signals is not None:
            flag("signals", self.signals)
        if self.on_dead is not None:
            function("on_dead", self.on_dead)
        if self.until is not None:
            one_of("until", self.until, ("empty",))


def planned(worker: type, settings: PlanSettings, *others: str) -> WorkerPlan:
    """Return the plan of a *worker*, which takes *others* by name, too. ConfigError for a bad or an unknown setting."""
    check_known(worker.__name__, settings, (*PlanSettings.__annotations__, *others))
    return WorkerPlan(**settings)


def plans(plan: WorkerPlan) -> Iterator[WorkerPlan]:
    """Yield the plan of each queue of a worker: one of them gives the sign of life for all."""
    yield plan
    while True:
        yield replace(plan, alive=None)


class PlanSettings(TypedDict, total=False):
    """The keyword arguments of `Worker` and `AsyncWorker`: any of the fields of `WorkerPlan`."""

    concurrency: int
    read_ahead: int
    time_limit: float | None
    grace: float
    backoff: Backoff
    visibility_timeout: float | None
    alive: Alive | None
    signals: bool | None
    on_dead: OnDead | None
    until: Until | None
