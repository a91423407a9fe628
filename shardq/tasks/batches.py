"""Calls of a task that takes a list are collected here, until there are enough or the first of them has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from shardq.client import Delivery
from shardq.client.leases import MAX_COST
from shardq.errors import ConfigError
from shardq.model.failed import is_a
from shardq.tasks.errors import PartlyFailed
from shardq.tasks.task import BatchTask
from shardq.worker.call import Environment
from shardq.worker.state import WorkerJob


class _Waiting:
    """A member of a batch, and who awaits it. `failure` is what it failed with."""

    def __init__(self, job: WorkerJob, member: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.job, self.member = job, member
        self.done: asyncio.Future[None] = loop.create_future()
        self.failure: BaseException | None = None
        self.running: _Running | None = None
        job.started = 0.0


class _Running:
    """A batch whose function runs. It is cancelled when nobody wants any of it: the worker ends, or time is over."""

    def __init__(self, task: asyncio.Task[None], members: int) -> None:
        self._task, self._wanted = task, members

    def leave(self) -> None:
        """Note that one of its members is not wanted any more."""
        self._wanted -= 1
        if not self._wanted:  # after its first step: a task that is cancelled before that would tell nobody of its end
            asyncio.get_running_loop().call_soon(self._task.cancel)


class Collector:
    """The calls of one task, which wait in the event loop, and in no thread. *run* runs its function with a list."""

    def __init__(
        self,
        task: BatchTask[Any, Any],
        run: Callable[[list[Any], Sequence[WorkerJob]], Awaitable[None]],
        environment: Environment,
    ) -> None:
        self._task, self._run, self._clock, self._fresh = task, run, environment.clock, environment.fresh
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def add(self, job: WorkerJob, arguments: Mapping[str, Any]) -> None:
        """Wait until the function has done this member of a batch. It raises what that has failed with."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(job, arguments[self._task.parameter], loop)
        self._waiting.append(waiting)
        if len(self._waiting) >= self._task.size:
            self._begin()
        elif self._timer is None:
            self._timer = loop.call_later(self._task.wait, self._begin)
        cancelled = await self._ended(waiting)
        if (failure := cancelled or waiting.failure) is not None:
            raise failure

    async def _ended(self, waiting: _Waiting) -> BaseException | None:
        """Wait for the end of the batch, also if it is cancelled: its function still works for this member, too."""
        cancelled: BaseException | None = None
        while not waiting.done.done():
            try:
                await asyncio.shield(waiting.done)
            except asyncio.CancelledError as error:
                if waiting.running is None:  # it waits for others, and has no part in the batch
                    self._waiting.remove(waiting)
                    raise
                if cancelled is None:
                    waiting.running.leave()
                cancelled = error
        return cancelled

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting, []
        if batch:
            task = asyncio.get_running_loop().create_task(self._work(batch), context=self._fresh())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            running = _Running(task, len(batch))
            for each in batch:
                each.running = running

    async def _work(self, batch: Sequence[_Waiting]) -> None:
        jobs, began = [each.job for each in batch], self._clock.monotonic()
        for job in jobs:
            job.started = began
        errors: Mapping[int, BaseException] = {}
        try:
            await self._run([each.member for each in batch], jobs)
        except BaseException as error:  # noqa: BLE001 (each of the batch may have failed with it)
            errors = errors_of(error, len(batch))
        _charge(jobs, self._clock.monotonic() - began)
        for number, each in enumerate(batch):
            each.failure = errors.get(number)
            each.done.set_result(None)


def errors_of(error: BaseException, size: int) -> Mapping[int, BaseException]:
    """Return what has failed of a batch, by its place. It raises nothing, whatever the error holds.

    That is all of it, unless the error names some places that are there, each with an error.
    """
    places = range(size)
    if not is_a(error, PartlyFailed):
        return dict.fromkeys(places, error)
    try:
        found = [(place, each) for place, each in vars(error)["errors"].items()]
        if all(type(place) is int and place in places and is_a(each, BaseException) for place, each in found):
            return dict(found)
    except BaseException:  # noqa: BLE001 (somebody else's mapping)
        found = []
    wrong = ConfigError(f"PartlyFailed takes errors by their places in the batch, which are 0 to {size - 1}")
    return dict.fromkeys(places, wrong)


def _charge(jobs: Sequence[WorkerJob], took: float) -> None:
    """The work was one for all: each tenant is charged its part, and not for how long its message waited for others."""
    share = min(took / len(jobs), MAX_COST)
    for job in jobs:
        delivery = cast("Delivery", job.delivery)
        job.members = len(jobs)
        if delivery.cost is None:
            delivery.cost = share
