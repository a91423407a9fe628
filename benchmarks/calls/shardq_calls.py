"""shardq's own calls: one message a call, batches, and crowds of threads and tasks on one client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from benchmarks.calls.action import Action, Crowd, Given, one_by_one
from shardq import AsyncClient, Client, Delivery

LEASE: Final = 600.0
THREADS: Final = 64
TASKS: Final = (64, 1000)


def actions(given: Given) -> dict[str, Action]:
    calls = Calls(given)
    return {**calls.single(), **calls.batches(), **calls.threads(), **Tasks(calls).actions()}


class Calls:
    """One queue, which holds as much before each turn as after it."""

    def __init__(self, given: Given) -> None:
        self.given, self.traffic = given, given.traffic()
        self.settings: dict[str, Any] = {
            "streams": given.streams, "streams_per_shard": given.per_shard, "visibility_timeout": LEASE
        }  # fmt: skip
        self.queue = Client.from_url(given.url).queue(given.name, **self.settings)
        if given.waiting:
            self.fill(given.waiting)

    def fill(self, count: int) -> None:
        traffic, batch = self.given.traffic(count), self.given.batch
        for at in range(0, count, batch):
            self.queue.write_many(traffic[at : at + batch])

    def filled(self, count: int) -> list[Delivery]:
        self.fill(count)
        return []

    def taken(self, count: int) -> list[Delivery]:
        """So many messages, read."""
        found: list[Delivery] = []
        while len(found) < count:
            some = self.queue.read_many(min(self.given.batch, count - len(found)))
            assert some, f"{count - len(found)} messages are missing"
            found += some
        return found

    def drop(self, count: int) -> None:
        """Read and ack so many."""
        assert not self.queue.ack_many(self.taken(count))

    def write(self, item: tuple[bytes, str]) -> None:
        self.queue.write(item[0], shard_key=item[1])

    def single(self) -> dict[str, Action]:
        """One call after the other."""
        count, queue = len(self.traffic), self.queue

        def consume(_: object) -> list[float]:
            return one_by_one(lambda _: queue.read().ack(), self.traffic)

        def fill() -> list[Delivery]:
            return self.filled(count)

        return {
            "write": Action(count, lambda _: one_by_one(self.write, self.traffic), finish=lambda _: self.drop(count)),
            "read, ack": Action(count, consume, fill),
            "read(ack=)": Action(count, self.with_next, fill),
        }

    def with_next(self, _: object) -> list[float]:
        """Each read brings the ack of the delivery before it; the last is acked alone, and is measured, too."""
        previous = self.queue.read()

        def turn(_: object) -> None:
            nonlocal previous
            previous = self.queue.read(ack=previous)

        found = one_by_one(turn, self.traffic[1:])
        return found + one_by_one(lambda each: each.ack(), [previous])

    def batches(self) -> dict[str, Action]:
        """As many messages with each call as a batch has."""
        count, batch, queue = len(self.traffic), self.given.batch, self.queue
        parts = [self.traffic[at : at + batch] for at in range(0, count, batch)]
        return {
            "write_many": Action(
                count, lambda _: one_by_one(queue.write_many, parts), finish=lambda _: self.drop(count)
            ),
            "read_many, ack_many": Action(
                count, lambda _: one_by_one(self.drop, [len(part) for part in parts]), lambda: self.filled(count)
            ),
        }

    def threads(self) -> dict[str, Action]:
        """One client, and threads that each make one call after the other."""
        count = max(len(self.traffic), THREADS)

        def writers() -> Crowd:
            return Crowd(THREADS, self.write, self.given.traffic(count))

        def settlers() -> Crowd:
            self.fill(count)
            return Crowd(THREADS, lambda each: each.ack(), self.taken(count))

        return {
            f"write, {THREADS} threads": Action(count, Crowd.go, writers, lambda _: self.drop(count)),
            f"ack, {THREADS} threads": Action(count, Crowd.go, settlers),
        }


class Tasks:
    """The same with tasks of asyncio on one client, which is made when it is first needed."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._runner = calls, asyncio.Runner()
        self._queue: Any = None

    def actions(self) -> dict[str, Action]:
        return {name: action for tasks in TASKS for name, action in self._of(tasks).items()}

    def _of(self, tasks: int) -> dict[str, Action]:
        calls = self._calls
        count = max(len(calls.traffic), tasks)

        def write(items: Sequence[Any]) -> list[float]:
            return self._run(tasks, lambda item: self._queue.write(item[0], shard_key=item[1]), items)

        def ack(items: Sequence[Any]) -> list[float]:
            return self._run(tasks, lambda each: each.ack(), items)

        def traffic() -> Sequence[Any]:
            self._open()
            return calls.given.traffic(count)

        def taken() -> Sequence[Any]:
            self._open()
            calls.fill(count)
            return self._runner.run(self._taken(count))

        return {
            f"write, {tasks:,} tasks": Action(count, write, traffic, lambda _: calls.drop(count)),
            f"ack, {tasks:,} tasks": Action(count, ack, taken),
        }

    def _open(self) -> None:
        if self._queue is None:
            calls = self._calls
            self._queue = AsyncClient.from_url(calls.given.url).queue(calls.given.name, **calls.settings)

    async def _taken(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += await self._queue.read_many(min(self._calls.given.batch, count - len(found)))
        return found

    def _run(self, tasks: int, call: Callable[[Any], Awaitable[object]], items: Sequence[Any]) -> list[float]:
        return self._runner.run(_shared(tasks, call, items))


async def _shared(tasks: int, call: Callable[[Any], Awaitable[object]], items: Sequence[Any]) -> list[float]:
    """So many tasks share the calls; the seconds of each call."""
    found: list[float] = []
    clock = time.perf_counter

    async def work(share: Sequence[Any]) -> None:
        for item in share:
            begun = clock()
            await call(item)
            found.append(clock() - begun)

    await asyncio.gather(*(work(items[at::tasks]) for at in range(tasks)))
    return found
