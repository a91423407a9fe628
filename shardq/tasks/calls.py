"""How workers run tasks: each with its middleware around it. Functions of both kinds may be mixed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from shardq.model import DeliveryView
from shardq.model.failed import is_a
from shardq.tasks.batches import Collector
from shardq.tasks.finding import Finder, judged, name_in
from shardq.tasks.task import INTERRUPTED, BatchTask, Task
from shardq.worker.call import Environment, MessageCall, is_async
from shardq.worker.guard import checked, tell
from shardq.worker.outcome import GiveBack, Nack, Reject
from shardq.worker.state import NO_TASKS, WorkerJob

OnError = Callable[[Any, BaseException], object]
"""Called with the delivery and what its task raised."""
ByName = Mapping[str, Task[Any, Any, Any]]


class Manner(msgspec.Struct, frozen=True):
    """How tasks are run: *middleware* is around each, the first one outermost.

    *note* gets the delivery that a task runs for, in the task's own context. The text of errors is stored if it
    *stores_text*. *on_error* gets errors.
    """

    middleware: Sequence[Callable[..., Any]]
    note: Callable[[Any], object]
    stores_text: bool
    on_error: OnError | None


class TasksCalls:
    """The calls of the *tasks* of one queue, by their names."""

    def __init__(self, tasks: ByName, manner: Manner, environment: Environment) -> None:
        self._tasks, self._manner, self._environment = tasks, manner, environment
        self._finder = Finder(environment.clock)
        self._known: dict[str, TaskCall] = {}

    def __call__(self, delivery: DeliveryView) -> MessageCall:
        """Return what a message calls; for an unknown name a call that says so."""
        name = name_in(delivery)
        return self._known.get(name) or self._add(name)

    def _add(self, name: str) -> MessageCall:
        task = self._tasks.get(name)
        call = TaskCall(task, self._finder, self._manner, self._environment)
        if task is not None:  # names come from outside: only those of tasks are remembered
            self._known[name] = call
        return call


class TaskCall(MessageCall):
    """A task, with the middleware around it. An unknown one (None) fails before any of that."""

    def __init__(
        self,
        task: Task[Any, Any, Any] | None,
        finder: Finder,
        manner: Manner,
        environment: Environment,
    ) -> None:
        super().__init__(environment, task.time_limit if task else None)
        self._task, self._finder, self._manner, self._note = task, finder, manner, manner.note
        self.name = task.name if task else None
        self._crossing: Any = environment.crossing
        self.where = task.where if task else "a task"
        self.returns = task.returns if task else None
        self._layers = [(each, is_async(each)) for each in manner.middleware] if task else []
        self._collector = Collector(task, self._run_batch, environment) if isinstance(task, BatchTask) else None
        self._innermost_is_async = self._collector is not None or (task is not None and task.is_async)
        self.is_async = self._layers[0][1] if self._layers else self._innermost_is_async

    def run(self, job: WorkerJob) -> Any:
        """Run what *job* calls."""
        task: Any = self._task
        arguments = self._finder.arguments(job.delivery, task)
        delivery = self._crossing.face(job.delivery) if self.is_async else job.delivery
        self._note(delivery)
        if self._layers:
            return self._around(job, arguments)(delivery)
        if self._collector is not None:
            return self._collector.add(job, arguments)
        return task.function(**arguments)

    def _delivery(self, job: WorkerJob, is_async: bool) -> Any:
        """Return the delivery as a function of this kind has it."""
        return self._crossing.face(job.delivery) if is_async else job.delivery

    def _around(self, job: WorkerJob, arguments: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Return the outermost middleware, which calls the next one, and so on."""
        call: Callable[[Any], Any] = partial(self._innermost, job, arguments)
        kind = self._innermost_is_async
        for layer, wanted in reversed(self._layers):
            call, kind = partial(layer, call if kind is wanted else self._across(job, call, kind)), wanted
        return call

    def _innermost(self, job: WorkerJob, arguments: Mapping[str, Any], _: Any) -> Any:
        if self._collector is not None:
            return self._collector.add(job, arguments)
        task = cast("Task[Any, Any, Any]", self._task)
        return self._awaited(task, arguments) if task.is_async else checked(task.function(**arguments), self.where)

    async def _awaited(self, task: Task[Any, Any, Any], arguments: Mapping[str, Any]) -> Any:
        return checked(await task.function(**arguments), self.where)

    def _across(self, job: WorkerJob, call: Callable[[Any], Any], is_async: bool) -> Callable[[Any], Any]:
        """Return *call* as a function of the other kind, which notes and passes on the delivery of its kind."""

        def plain() -> Any:
            delivery = self._delivery(job, is_async=False)
            self._note(delivery)
            return call(delivery)

        async def awaited() -> Any:
            if job.delivery.lost:  # before the task's first step
                raise asyncio.CancelledError
            delivery = self._delivery(job, is_async=True)
            self._note(delivery)
            return await call(delivery)

        def in_loop(_: Any) -> Any:
            if job.tasks is NO_TASKS:
                job.tasks = set()
            return self._crossing.in_loop(job.tasks, awaited)

        def in_hand(_: Any) -> Any:
            return self._crossing.in_hand(plain)

        return in_loop if is_async else in_hand

    async def _run_batch(self, members: list[Any], jobs: Sequence[WorkerJob]) -> None:
        task = cast("BatchTask[Any, Any]", self._task)
        deliveries = [self._delivery(job, task.is_async) for job in jobs]
        if task.is_async:
            self._note(deliveries)
            checked(await task.function(members), self.where)
            return

        def plain() -> None:
            self._note(deliveries)
            checked(task.function(members), self.where)

        await self._crossing.in_hand(plain)

    async def aside(self, judge: Callable[[], None]) -> None:
        """Call *judge*, in a thread if there is an `on_error`."""
        if self._manner.on_error is None:
            judge()
        else:
            await self._crossing.in_hand(judge)

    def tell(self, delivery: DeliveryView, error: BaseException) -> None:
        """Tell `on_error` of an *error*."""
        on_error = self._manner.on_error
        if on_error is not None and self._task is not None and not is_a(error, (Nack, Reject, GiveBack)):
            tell("on_error", on_error, delivery, error)

    def judged(self, delivery: DeliveryView, error: BaseException) -> BaseException:
        """Return what becomes of the task after an *error*, by its own retries."""
        if self._task is None:
            return error
        with_text = self._manner.stores_text or type(error) in INTERRUPTED  # which have no text of the program's
        return judged(self._task, error, delivery, with_text=with_text)
