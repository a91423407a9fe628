"""Calls of a task that takes a list are collected here, until there are enough or the first of them has waited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shardq.client import AsyncDelivery, Delivery
from shardq.client.leases import MAX_COST, LeasedDelivery
from shardq.clock import Clock
from shardq.errors import ConfigError
from shardq.tasks.errors import PartlyFailed
from shardq.tasks.task import BatchTask
from shardq.worker.contexts import Fresh
from shardq.worker.outcome import is_a


class _Waiting:
    """A member of a batch, and who awaits it. `failure` is what it failed with."""

    def __init__(self, delivery: AsyncDelivery, member: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.delivery, self.member = delivery, member
        self.done: asyncio.Future[None] = loop.create_future()
        self.failure: BaseException | None = None
        self.running: _Running | None = None
        delivery.began = 0.0


class _Running:
    """A batch whose function runs. It is cancelled when nobody wants any of it: the worker ends, or time is over."""

    def __init__(self, task: asyncio.Task[None], members: int) -> None:
        self._task, self._wanted = task, members

    def leave(self) -> None:
        """Note that one of its members is not wanted any more."""
        self._wanted -= 1
        if not self._wanted:  # after its first step: a task that is cancelled before that would tell nobody of its end
            asyncio.get_running_loop().call_soon(self._task.cancel)


class AsyncBatches:
    """The batches of one task. *run* runs its function with a list."""

    def __init__(
        self,
        task: BatchTask[Any, Any],
        run: Callable[[list[Any], Sequence[AsyncDelivery]], Awaitable[Any]],
        clock: Clock,
        fresh: Fresh,
    ) -> None:
        self._task, self._run, self._clock, self._fresh = task, run, clock, fresh
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def add(self, delivery: AsyncDelivery, member: Any) -> None:
        """Wait until the function has done this member of a batch. It raises what that has failed with."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(delivery, member, loop)
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
        began = self._clock.monotonic()
        _note_begin([each.delivery for each in batch], began)
        errors: Mapping[int, BaseException] = {}
        try:
            await self._run([each.member for each in batch], [each.delivery for each in batch])
        except BaseException as error:  # noqa: BLE001 (each of the batch may have failed with it)
            errors = errors_of(error, len(batch))
        _charge([each.delivery for each in batch], self._clock.monotonic() - began)
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


def _note_begin(deliveries: Sequence[LeasedDelivery], began: float) -> None:
    for delivery in deliveries:
        delivery.began = began


def _charge(deliveries: Sequence[LeasedDelivery], took: float) -> None:
    """The work was one for all: each tenant is charged its part, and not for how long its message waited for others."""
    share = min(took / len(deliveries), MAX_COST)
    for delivery in deliveries:
        if delivery.cost is None:
            delivery.cost = share


class _Batch:
    """A batch that threads put together: the first of them runs it for all."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self.deliveries: list[Delivery] = []
        self.errors: Mapping[int, BaseException] = {}
        self.is_full, self.is_done = threading.Event(), threading.Event()


class Batches:
    """The batches of one task in the threads of a Worker. *run* runs its function with a list."""

    def __init__(
        self, task: BatchTask[Any, Any], run: Callable[[list[Any], Sequence[Delivery]], Any], clock: Clock, fresh: Fresh
    ) -> None:
        self._task, self._run, self._clock, self._fresh = task, run, clock, fresh
        self._lock = threading.Lock()
        self._open: _Batch | None = None

    def add(self, delivery: Delivery, member: Any) -> None:
        """Wait until the function has done this member of a batch. It raises what that has failed with."""
        delivery.began = 0.0
        with self._lock:
            is_first = self._open is None
            batch = self._open = self._open or _Batch()
            number = len(batch.members)
            batch.members.append(member)
            batch.deliveries.append(delivery)
            if number + 1 >= self._task.size:
                self._open = None
                batch.is_full.set()
        if is_first:
            batch.is_full.wait(self._task.wait)
            self._work(batch)
        batch.is_done.wait()
        if (error := batch.errors.get(number)) is not None:
            raise error

    def _work(self, batch: _Batch) -> None:
        with self._lock:
            if self._open is batch:
                self._open = None
        began = self._clock.monotonic()
        _note_begin(batch.deliveries, began)
        try:
            self._fresh().run(self._run, batch.members, batch.deliveries)
        except BaseException as error:  # noqa: BLE001 (each of the batch may have failed with it)
            batch.errors = errors_of(error, len(batch.members))
        finally:
            _charge(batch.deliveries, self._clock.monotonic() - began)
            batch.is_done.set()
