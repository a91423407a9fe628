"""How workers run tasks. An AsyncWorker runs `async def` functions in its event loop, and plain ones in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from shardq.client import AsyncDelivery, Delivery
from shardq.clock import Clock
from shardq.model import DeliveryView
from shardq.tasks.batches import AsyncBatches, Batches
from shardq.tasks.finding import Finder, judged
from shardq.tasks.in_thread import InThread
from shardq.tasks.task import BatchTask, Task
from shardq.worker.contexts import Fresh
from shardq.worker.guard import checked, is_cancelled, raised_by, tell
from shardq.worker.hands import Hands
from shardq.worker.outcome import GiveBack, Nack, Reject, is_a

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
        if self.on_error is not None and not is_a(error, (Nack, Reject, GiveBack)):
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
                result: object = await task.function(**arguments)
                return None if result is None else checked(result, task.where)
            return await self._perform(task, arguments, delivery)
        except BaseException as error:
            if is_cancelled(error):
                raise  # by the worker, which knows why
            raise self._manner.judged(task, error, delivery) from error

    async def _perform(self, task: Task[Any, Any, Any], arguments: dict[str, Any], delivery: AsyncDelivery) -> object:
        if isinstance(task, BatchTask):
            await self._batches_of(task).add(delivery, arguments[task.parameter])
            return None
        if task.is_async:
            return checked(await task.function(**arguments), task.where)
        return await self._in_thread(task, arguments, InThread(delivery, asyncio.get_running_loop()))

    async def _in_thread(self, task: Task[Any, Any, Any], arguments: dict[str, Any], noted: object) -> object:
        """Run a plain function in the context of its task, but with a delivery that a thread can use."""

        def call() -> object:
            self._note(noted)
            return task.function(**arguments)

        return checked(await self._hands.run(call), task.where)

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
            return checked(await task.function(members), task.where)
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
            return None if result is None else checked(result, task.where)
        except BaseException as error:
            raise self._manner.judged(task, error, delivery) from error

    def _perform(self, task: Task[Any, Any, Any], arguments: dict[str, Any], delivery: Delivery) -> object:
        if isinstance(task, BatchTask):
            self._batches_of(task).add(delivery, arguments[task.parameter])
            return None
        result: object = task.function(**arguments)
        return checked(result, task.where)

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
        return checked(task.function(members), task.where)


def _around(middleware: Sequence[Callable[..., Any]], perform: Callable[..., Any]) -> Callable[..., Any]:
    for each in reversed(middleware):
        perform = partial(each, perform)
    return perform
