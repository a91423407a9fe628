"""An application: a handler that has a life of its own around the messages, as the tasks of a queue have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from shardq.client import AsyncDelivery, AsyncQueue
from shardq.clock import Clock
from shardq.model import DeliveryView
from shardq.model.schedule import FixedSchedule
from shardq.worker.contexts import Fresh
from shardq.worker.hands import Hands
from shardq.worker.plan import Plan

AsyncHandler = Callable[[AsyncDelivery], Awaitable[object]]
PlainHandler = Callable[[Any], object]
"""It takes a Delivery, or in a child process a DeliveryView."""


@runtime_checkable
class Application(Protocol):
    """What a worker opens before its first message, and closes after its last. Errors of both are raised by `run`."""

    @abstractmethod
    def opened_async(self, jobs: AsyncQueue, hands: Hands, fresh: Fresh) -> AbstractAsyncContextManager[AsyncHandler]:
        """Return a context that yields the handler of an AsyncWorker. ConfigError if it is for a Worker only."""

    @abstractmethod
    def opened(self, clock: Clock, fresh: Fresh) -> AbstractContextManager[PlainHandler]:
        """Return a context that yields the handler of a Worker, or of one of its child processes.

        ConfigError if it is for an AsyncWorker only.
        """

    @abstractmethod
    def check_forks(self) -> None:
        """ConfigError unless child processes can run it."""

    @abstractmethod
    def schedules(self) -> Mapping[str, Sequence[FixedSchedule]]:
        """Return what is to be called again and again, by the name of the queue that gets the messages."""

    @abstractmethod
    def has_time_limits(self) -> bool:
        """Return whether `time_limit` must be asked."""

    @abstractmethod
    def time_limit(self, delivery: DeliveryView) -> float | None:
        """Return after how many seconds the work on *delivery* has failed; None if only the worker's limit counts."""

    @abstractmethod
    def judged(self, delivery: DeliveryView, error: BaseException) -> BaseException:
        """Return what a worker makes of an *error* of the work on *delivery*: a `Failed`, or the error itself."""

    @abstractmethod
    def tell(self, delivery: DeliveryView, error: BaseException) -> None:
        """Tell the program of an *error* that its handler did not raise itself."""


def limit_of(application: Application | None, plan: Plan, delivery: DeliveryView) -> float | None:
    """Return the shorter one of the application's and the worker's time limit for *delivery*."""
    if application is None:
        return plan.time_limit
    limits = [each for each in (application.time_limit(delivery), plan.time_limit) if each is not None]
    return min(limits, default=None)
