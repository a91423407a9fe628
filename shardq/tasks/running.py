"""How workers run tasks. An AsyncWorker runs `async def` functions in its event loop, and plain ones in threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from shardq.client import AsyncDelivery, Delivery
from shardq.clock import Clock
from shardq.errors import ConfigError
from shardq.model import DeliveryView
from shardq.tasks.batches import AsyncBatches, Batches
from shardq.tasks.finding import Finder, judged
from shardq.tasks.in_thread import InThread
from shardq.tasks.task import BatchTask, Task
from shardq.worker.contexts import Fresh
from shardq.worker.guard import raised_by, tell
from shardq.worker.hands import Hands
from shardq.worker.outcome import GiveBack, Nack, Reject

OnError = Callable[[Any, BaseException], object]
"""Called with the delivery and what its task raised."""


class Manner(msgspec.Struct, frozen=True):
    """How tasks are run: *middleware* is around each, the first one outermost.

    *note* is told the delivery that a task runs for, in the task's own context. The text of errors is stored if it
    *stores_text*. *on_error* is told of errors.
    """

    middleware: Sequence[Callable[..., Any]]
    note: Callable[[Any], object]
    stores_text: bool
    on_error: OnError | None

    def judged(self, task: Task[Any, Any, Any], error: BaseException, delivery: DeliveryView) -> BaseException:
        """Return what a worker is to be told of an *error* of a task, after the program was told of it."""
        error = raised_by(error)
        self.tell(delivery, error)
        return judged(task, error, delivery, with_text=self.stores_text)

    def tell(self, delivery: DeliveryView, error: BaseException) -> None:
        """Tell the program of an *error* of a task."""
        if self.on_error is not None and not isinstance(error, (Nack, Reject, GiveBack)):
            tell("on_error", self.on_error, delivery, error)


class AsyncRunner:
    """Runs the tasks of deliveries in an event loop, and plain functions by *hands*."""

    def __init__(self, finder: Finder, manner: Manner, hands: Hands, clock: Clock, fresh: Fresh) -> None:
        self._manner, self._hands, self._clock, self._fresh = manner, hands, clock, fresh
        self._find, self._note, self._middleware = finder.find, manner.note, manner.middleware
        self._batches: dict[str, AsyncBatches] = {}

    async def run(self, delivery: AsyncDelivery) -> object:
        """Run what *delivery* calls, and return its result."""
        task, arguments = self._find(delivery)
        try:
            self._note(delivery)
            if self._middleware:
                return await _around(self._middleware, partial(self._perform, task, arguments))(delivery)
            # Most are simple. Two coroutines more would be half of what a call costs.
            if task.is_simple:
                return await task.function(**arguments)
            return await self._perform(task, arguments, delivery)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise  # by the worker, which knows why
            raise self._manner.judged(task, error, delivery) from error

    async def _perform(self, task: Task[Any, Any, Any], arguments: dict[str, Any], delivery: AsyncDelivery) -> object:
        if isinstance(task, BatchTask):
            await self._batches_of(task).add(delivery, arguments[task.parameter])
            return None
        if task.is_async:
            return await task.function(**arguments)
        return await self._in_thread(task, arguments, InThread(delivery, asyncio.get_running_loop()))

    async def _in_thread(self, task: Task[Any, Any, Any], arguments: dict[str, Any], noted: object) -> object:
        """Run a plain function in the context of its task, but with a delivery that a thread can use."""

        def call() -> object:
            self._note(noted)
            return task.function(**arguments)

        return _checked(task, await self._hands.run(call))

    def _batches_of(self, task: BatchTask[Any, Any]) -> AsyncBatches:
        found = self._batches.get(task.name)
        if found is None:
            found = self._batches[task.name] = AsyncBatches(
                task, partial(self._run_batch, task), self._clock, self._fresh
            )
        return found

    async def _run_batch(
        self, task: BatchTask[Any, Any], members: list[Any], deliveries: Sequence[AsyncDelivery]
    ) -> object:
        if task.is_async:
            self._note(deliveries)
            return await task.function(members)
        loop = asyncio.get_running_loop()
        return await self._in_thread(task, {task.parameter: members}, [InThread(each, loop) for each in deliveries])


class Runner:
    """Runs the tasks of deliveries in the threads of a Worker."""

    def __init__(self, finder: Finder, manner: Manner, clock: Clock, fresh: Fresh) -> None:
        self._manner, self._clock, self._fresh = manner, clock, fresh
        self._find, self._note, self._middleware = finder.find, manner.note, manner.middleware
        self._lock = threading.Lock()
        self._batches: dict[str, Batches] = {}

    def run(self, delivery: Delivery) -> object:
        """Run what *delivery* calls, and return its result."""
        task, arguments = self._find(delivery)
        try:
            self._note(delivery)
            if self._middleware:
                return _around(self._middleware, partial(self._perform, task, arguments))(delivery)
            if task.is_batch:
                return self._perform(task, arguments, delivery)
            result: object = task.function(**arguments)
            return None if result is None else _checked(task, result)
        except BaseException as error:
            raise self._manner.judged(task, error, delivery) from error

    def _perform(self, task: Task[Any, Any, Any], arguments: dict[str, Any], delivery: Delivery) -> object:
        if isinstance(task, BatchTask):
            self._batches_of(task).add(delivery, arguments[task.parameter])
            return None
        result: object = task.function(**arguments)
        return _checked(task, result)

    def _batches_of(self, task: BatchTask[Any, Any]) -> Batches:
        with self._lock:
            found = self._batches.get(task.name)
            if found is None:
                found = self._batches[task.name] = Batches(
                    task, partial(self._run_batch, task), self._clock, self._fresh
                )
        return found

    def _run_batch(self, task: BatchTask[Any, Any], members: list[Any], deliveries: Sequence[Delivery]) -> object:
        self._note(deliveries)
        return task.function(members)


def _checked(task: Task[Any, Any, Any], result: object) -> object:
    """Return what a plain function returned. ConfigError if it is to be awaited, since then nothing was done yet."""
    if result is not None and inspect.isawaitable(result):
        raise ConfigError(f"{task.where} returned an awaitable, which nobody awaits: declare it with async def")
    return result


def _is_cancelled() -> bool:
    """Return whether somebody cancelled this task. Else it awaited something that was cancelled, and so has failed."""
    return (task := asyncio.current_task()) is None or task.cancelling() > 0


def _around(middleware: Sequence[Callable[..., Any]], perform: Callable[..., Any]) -> Callable[..., Any]:
    for each in reversed(middleware):
        perform = partial(each, perform)
    return perform
