"""An application: a handler that has a life of its own around the messages, as the tasks of a queue have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from shardq.model.schedule import FixedSchedule
from shardq.worker.call import CallOf, Environment, HandlerCall

Lifespan: TypeAlias = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]


@runtime_checkable
class Application(Protocol):
    """The program that a worker runs, if it is no function.

    For the parts of shardq that work.
    """

    @abstractmethod
    def calls(self, environment: Environment) -> CallOf:
        """Return a function that returns what a message calls."""

    def task_names(self, queue: str) -> Sequence[str]:
        """Return the names of the tasks that messages of *queue* call, as far as they are known before."""
        return ()

    @abstractmethod
    def lifespans(self) -> Sequence[Lifespan]:
        """Return what a worker enters before its first message and leaves after its last. `run` raises their errors."""

    @property
    @abstractmethod
    def is_async(self) -> bool:
        """Whether anything of its calls needs an event loop."""

    @abstractmethod
    def check_forks(self) -> None:
        """ConfigError unless child processes can run it."""

    @abstractmethod
    def schedules(self) -> Mapping[str, Sequence[FixedSchedule]]:
        """Return what is to be called again and again, by the name of the queue that gets the messages."""


def calls_of(handle: Callable[..., Any] | Application, environment: Environment) -> CallOf:
    """Return a function that returns what a message calls."""
    if isinstance(handle, Application):
        return handle.calls(environment)
    call = HandlerCall(environment, handle)
    return lambda _: call
