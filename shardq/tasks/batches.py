"""Calls of a task that takes a list are collected here, until there are enough or the first of them has waited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shardq.client import AsyncDelivery, Delivery
from shardq.client.leases import MAX_COST, LeasedDelivery
from shardq.clock import Clock
from shardq.errors import ConfigError
from shardq.tasks.errors import PartlyFailed
from shardq.tasks.task import BatchTask


class _Waiting(NamedTuple):
    delivery: AsyncDelivery
    member: Any
    done: asyncio.Future[None]


class AsyncBatches:
    """The batches of one task. *run* runs its function with a list."""

    def __init__(
        self,
        task: BatchTask[Any, Any],
        run: Callable[[list[Any], Sequence[AsyncDelivery]], Awaitable[Any]],
        clock: Clock,
    ) -> None:
        self._task, self._run, self._clock = task, run, clock
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def add(self, delivery: AsyncDelivery, member: Any) -> None:
        """Wait until the function has done this member of a batch. It raises what that has failed with."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(delivery, member, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) >= self._task.size:
            self._begin()
        elif self._timer is None:
            self._timer = loop.call_later(self._task.wait, self._begin)
        await waiting.done

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # One that was cancelled while it waited, since its lease was lost or the worker ends, has no part in it.
        batch, self._waiting = [each for each in self._waiting if not each.done.done()], []
        if batch:
            running = asyncio.get_running_loop().create_task(self._work(batch))
            self._running.add(running)
            running.add_done_callback(self._running.discard)
            _cancel_with(running, batch)

    async def _work(self, batch: Sequence[_Waiting]) -> None:
        began = self._clock.monotonic()
        errors: Mapping[int, BaseException] = {}
        try:
            await self._run([each.member for each in batch], [each.delivery for each in batch])
        except BaseException as error:  # noqa: BLE001 (each of the batch may have failed with it)
            errors = _errors(error, len(batch))
        _charge([each.delivery for each in batch], self._clock.monotonic() - began)
        for number, each in enumerate(batch):
            if each.done.done():
                continue
            _end(each.done, errors.get(number))


def _errors(error: BaseException, size: int) -> Mapping[int, BaseException]:
    """Return what has failed of a batch, by its place: all, unless the error names some that are there."""
    places = range(size)
    if not isinstance(error, PartlyFailed):
        return dict.fromkeys(places, error)
    if all(place in places for place in error.errors):
        return error.errors
    wrong = ConfigError(f"PartlyFailed names a place that a batch of {size} does not have: they are from 0 on")
    return dict.fromkeys(places, wrong)


def _end(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if failure is None:
        done.set_result(None)
    elif isinstance(failure, asyncio.CancelledError):
        done.cancel()
    else:
        done.set_exception(failure)


def _charge(deliveries: Sequence[LeasedDelivery], took: float) -> None:
    """The work was one for all: each tenant is charged its part, and not for how long its message waited for others."""
    share = min(took / len(deliveries), MAX_COST)
    for delivery in deliveries:
        if delivery.cost is None:
            delivery.cost = share


def _cancel_with(running: asyncio.Task[None], batch: Sequence[_Waiting]) -> None:
    """Cancel a batch that is under way when nobody waits for any of it: the worker ends, or its time is over."""
    left = len(batch)

    def ended(done: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if done.cancelled() and left == 0:
            running.cancel()

    for each in batch:
        each.done.add_done_callback(ended)


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
        self, task: BatchTask[Any, Any], run: Callable[[list[Any], Sequence[Delivery]], Any], clock: Clock
    ) -> None:
        self._task, self._run, self._clock = task, run, clock
        self._lock = threading.Lock()
        self._open: _Batch | None = None

    def add(self, delivery: Delivery, member: Any) -> None:
        """Wait until the function has done this member of a batch. It raises what that has failed with."""
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
        try:
            self._run(batch.members, batch.deliveries)
        except BaseException as error:  # noqa: BLE001 (each of the batch may have failed with it)
            batch.errors = _errors(error, len(batch.members))
        finally:
            _charge(batch.deliveries, self._clock.monotonic() - began)
            batch.is_done.set()
