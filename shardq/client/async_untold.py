"""`AsyncUntoldQueue`, for asyncio (`make twins` makes the one for threads)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shardq.arguments import text
from shardq.client.acking import to_ack
from shardq.client.async_job import AsyncJob
from shardq.client.async_queue import AsyncQueue
from shardq.client.async_schedules import AsyncSchedules
from shardq.model.call import Callee, returns_of
from shardq.ops.queue.opening import await_queue
from shardq.ops.read.read import checked_wanted
from shardq.telemetry.gate import watched

if TYPE_CHECKING:
    from shardq.client.async_delivery import AsyncDelivery

K = TypeVar("K", bound=type)
T = TypeVar("T")

_FIND_OUT: Final = frozenset(
    {"client", "declare", "job", "name", "read", "read_many", "schedules", "write", "write_many"}
)
"""Attributes that make no call, or whose first call opens the queue, which says whether it has partitions."""


def _looks_first(kind: K) -> K:
    """Let each method of a class of queues look at the queue first, but for those that find out by themselves."""
    for name in dir(kind):
        if not (name.startswith("_") or name in _FIND_OUT):
            setattr(kind, name, _looking(getattr(kind, name)))
    return kind


def _looking(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    async def method(self: AsyncUntoldQueue, *args: Any, **options: Any) -> Any:
        await AsyncUntoldQueue._look(self, options.get("timeout"))
        told = plain if type(self) is AsyncUntoldQueue else getattr(type(self), plain.__name__)
        return await told(self, *args, **options)

    return method


@_looks_first
class AsyncUntoldQueue(AsyncQueue):
    """A queue that this client knows nothing of yet, so it may have partitions: its first call finds out.

    Then its class is exchanged. Until then there is no such queue, so it is as a queue without partitions. A client
    that only looks at a queue without any looks again after a while: no call of its own would tell it of new ones.
    """

    _seen_at = -math.inf

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules that users stored in the queue, wherever these are."""
        return AsyncUntoldSchedules(self)

    async def _look(self, timeout: float | None) -> None:
        """Look whether the queue is there, and has partitions. No call waits for the look of one that was there."""
        from shardq.partitions.asking import MAX_AGE, is_seen

        now = self.state.clock.monotonic()
        if not self.state.epoch and now - self._seen_at >= MAX_AGE:
            look = is_seen(self.state, self.state.until(timeout))
            if self.state.streams:
                self._seen_at = now
                self._client._run_in_background(look)
            elif await self._client.run(look):
                self._seen_at = now
        AsyncUntoldQueue._told(self)

    def _told(self: AsyncQueue) -> None:
        """Become a queue without partitions if it is one. With the look that found some it has become the other."""
        if type(self) is AsyncUntoldQueue and self.state.epoch:
            self.__class__ = AsyncQueue  # type: ignore[assignment]

    async def write(self, payload: Any, **options: Any) -> Any:
        """Store one message: see `AsyncQueue.write`. Where the queue has partitions it goes to the home of its key."""
        written = await AsyncQueue.write(self, payload, **options)  # not of `super()`: the class may be another by now
        AsyncUntoldQueue._told(self)
        return _told_job(self, written) if isinstance(written, AsyncJob) else written

    def job(self, task: Callee[T], message_id: str) -> AsyncJob[T]:
        """Return the job that a call of *task* became: see `AsyncQueue.job`."""
        return AsyncUntoldJob.of(self, text("message_id", message_id), returns_of(task))

    async def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        ack: AsyncDelivery | Sequence[AsyncDelivery] | None,
        *,
        batch: bool,
    ) -> list[AsyncDelivery]:
        checked_wanted(block, visibility, prefer)
        to_ack(self, ack)
        began = self._telemetry.begin() if watched() else None
        until = self.state.clock.monotonic() + block
        try:
            await self._client.run(await_queue(self.state, block, self.state.until(timeout)))
        except Exception as error:
            self._telemetry.read_failed(began, error)
            raise
        AsyncUntoldQueue._told(self)
        left = block and max(0.0, until - self.state.clock.monotonic())
        return await self._read(count, left, visibility, prefer, timeout, ack, batch=batch)


class AsyncUntoldSchedules(AsyncSchedules):
    """Schedules of a queue that was unknown when they were asked for."""


def _looking_at_queue(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    async def method(self: AsyncUntoldSchedules, *args: Any, **options: Any) -> Any:
        if isinstance(self._queue, AsyncUntoldQueue):
            await self._queue._look(options.get("timeout"))
        found = self._queue.schedules
        told = plain if type(found) is AsyncUntoldSchedules else getattr(type(found), plain.__name__)
        return await told(found, *args, **options)

    return method


for _name in ("add", "list", "pause", "remove", "resume", "run"):
    setattr(AsyncUntoldSchedules, _name, _looking_at_queue(getattr(AsyncSchedules, _name)))


class AsyncUntoldJob(AsyncJob[T]):
    """A job of a queue that was unknown when it was made."""

    async def result(self, *, timeout: float | None = None) -> T:
        """Wait for the result: see `AsyncJob.result`."""
        if type(self._queue) is AsyncUntoldQueue:
            await self._queue._look(timeout)
        return await _told_job(self._queue, self).result(timeout=timeout)


def _told_job(queue: AsyncQueue, job: AsyncJob[T]) -> AsyncJob[T]:
    """Return the job of a queue, now that it is known whether the queue has partitions."""
    kind: type[AsyncJob[T]] = getattr(type(queue), "_kind_of_job", AsyncJob)
    return kind.of(queue, job, job._returns)
