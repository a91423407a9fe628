"""shardq's own calls, of this checkout or of an older one: what an older one cannot do is left out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from inspect import signature
from typing import Any

from benchmarks.calls.action import Action, Crowd, Given, one_by_one
from shardq import AsyncClient, Client, Delivery, Queue

CALLS = ("fcall", "fcall_ro", "evalsha", "evalsha_ro")
LEASE = 600.0
THREADS, TASKS = (64,), (64, 1000)
COPIES, TOPIC = 3, "copies"


def actions(given: Given) -> dict[str, Action]:
    calls = Calls(given)
    return {**calls.single(), **calls.batches(), **calls.threads(), **Tasks(calls).actions()}


class Calls:
    """One queue, filled and emptied around what is measured."""

    def __init__(self, given: Given) -> None:
        self.given, self.traffic = given, given.traffic()
        window: dict[str, Any] = {} if given.window is None else {"window": given.window}
        self.settings = {
            "streams": given.streams, "streams_per_shard": given.per_shard, "visibility_timeout": LEASE, **window
        }  # fmt: skip
        self.client = Client.from_url(given.url)
        self.queue = self.client.queue(given.name, **self.settings)
        self.copies: list[Queue] = []

    def fill(self, messages: int = 0) -> None:
        traffic, batch = self.given.traffic(messages) if messages else self.traffic, self.given.batch
        for at in range(0, len(traffic), batch):
            self.queue.write_many(traffic[at : at + batch])

    def filled(self) -> list[Delivery]:
        self.fill()
        return []

    def taken(self, messages: int = 0) -> list[Delivery]:
        """So many messages, read."""
        self.fill(messages)
        found: list[Delivery] = []
        while some := self.queue.read_many(self.given.batch):
            found += some
        assert len(found) == (messages or len(self.traffic))
        return found

    def drain(self, _: object = None) -> None:
        while found := self.queue.read_many(self.given.batch):
            self.queue.ack_many(found)

    def bind(self) -> None:
        """Let what is published go to three queues of its own."""
        if not self.copies:
            names = [f"{self.given.name}.{number}" for number in range(COPIES)]
            self.copies = [self.client.queue(name, **self.settings) for name in names]
            for queue in self.copies:
                queue.len()
                self.client.bind(TOPIC, queue, router=self.given.name)

    def drain_copies(self, _: object = None) -> None:
        for queue in self.copies:
            while found := queue.read_many(self.given.batch):
                queue.ack_many(found)

    def publish(self, item: tuple[bytes, str]) -> None:
        self.client.publish(TOPIC, item[0], shard_key=item[1], router=self.given.name)

    def write(self, item: tuple[bytes, str]) -> None:
        self.queue.write(item[0], shard_key=item[1])

    def single(self) -> dict[str, Action]:
        """One call after the other."""
        count, queue, turns = len(self.traffic), self.queue, range(len(self.traffic))

        def write(_: object) -> list[float]:
            return one_by_one(self.write, self.traffic)

        def read(found: list[Delivery]) -> list[float]:
            return one_by_one(lambda _: found.append(queue.read()), turns)

        def ack(found: list[Delivery]) -> list[float]:
            return one_by_one(lambda each: each.ack(), found)

        def consume(_: object) -> list[float]:
            return one_by_one(lambda _: queue.read().ack(), turns)

        made = {
            "write": Action(count, write, CALLS, finish=self.drain),
            "read": Action(count, read, CALLS, self.filled, queue.ack_many),
            "ack": Action(count, ack, CALLS, self.taken),
            "consume": Action(count, consume, CALLS, self.filled),
        }
        if "ack" in signature(Queue.read).parameters:
            made["consume, ack with the next read"] = Action(count, self._with_next, CALLS, self.filled)
        return made

    def _with_next(self, _: object) -> list[float]:
        """Each read brings the ack of the delivery before it; the last is acked alone, and is measured, too."""
        read: Any = self.queue.read
        previous = self.queue.read()

        def turn(_: int) -> None:
            nonlocal previous
            previous = read(ack=previous)

        found = one_by_one(turn, range(1, len(self.traffic)))
        return found + one_by_one(lambda each: each.ack(), [previous])

    def batches(self) -> dict[str, Action]:
        """As many messages with each call as a batch has."""
        count, batch, queue = len(self.traffic), self.given.batch, self.queue
        parts = range(0, count, batch)

        def write(_: object) -> list[float]:
            return one_by_one(lambda at: queue.write_many(self.traffic[at : at + batch]), parts)

        def read(found: list[Delivery]) -> list[float]:
            took = []
            while len(found) < count:
                took += one_by_one(lambda _: found.extend(queue.read_many(batch)), parts[:1])
            return took

        def ack(found: list[Delivery]) -> list[float]:
            return one_by_one(lambda at: queue.ack_many(found[at : at + batch]), parts)

        return {
            "write_many": Action(count, write, CALLS, finish=self.drain),
            "read_many": Action(count, read, CALLS, self.filled, queue.ack_many),
            "ack_many": Action(count, ack, CALLS, self.taken),
        }

    def threads(self) -> dict[str, Action]:
        """One client, and threads that each make one call after the other."""
        made = {}
        for threads in THREADS:
            count = max(len(self.traffic), threads * self.given.each)

            def writers(threads: int = threads, count: int = count) -> Crowd:
                return Crowd(threads, self.write, self.given.traffic(count))

            def publishers(threads: int = threads, count: int = count) -> Crowd:
                self.bind()
                return Crowd(threads, self.publish, self.given.traffic(count))

            def settlers(threads: int = threads, count: int = count) -> Crowd:
                return Crowd(threads, lambda each: each.ack(), self.taken(count))

            made[f"write, {threads} threads"] = Action(count, Crowd.go, CALLS, writers, self.drain)
            name = f"publish to {COPIES} queues, {threads} threads"
            made[name] = Action(count, Crowd.go, CALLS, publishers, self.drain_copies)
            made[f"ack, {threads} threads"] = Action(count, Crowd.go, CALLS, settlers)
        return made


class Tasks:
    """The same with tasks of asyncio on one client, which is made when it is first needed."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._runner = calls, asyncio.Runner()
        self._queue: Any = None

    def actions(self) -> dict[str, Action]:
        made = {}
        for tasks in TASKS:
            count = max(len(self._calls.traffic), tasks * self._calls.given.each)

            def write(items: Sequence[Any], tasks: int = tasks) -> list[float]:
                return self._run(tasks, lambda item: self._queue.write(item[0], shard_key=item[1]), items)

            def publish(items: Sequence[Any], tasks: int = tasks) -> list[float]:
                return self._run(tasks, self._publish, items)

            def ack(items: Sequence[Any], tasks: int = tasks) -> list[float]:
                return self._run(tasks, lambda each: each.ack(), items)

            def traffic(count: int = count) -> Sequence[Any]:
                self._open()
                return self._calls.given.traffic(count)

            def topics(count: int = count) -> Sequence[Any]:
                self._calls.bind()
                return traffic(count)

            def taken(count: int = count) -> Sequence[Any]:
                self._open()
                self._calls.fill(count)
                return self._runner.run(self._taken(count))

            made[f"write, {tasks:,} tasks"] = Action(count, write, CALLS, traffic, self._calls.drain)
            name = f"publish to {COPIES} queues, {tasks:,} tasks"
            made[name] = Action(count, publish, CALLS, topics, self._calls.drain_copies)
            made[f"ack, {tasks:,} tasks"] = Action(count, ack, CALLS, taken)
        return made

    def _open(self) -> None:
        if self._queue is None:
            calls = self._calls
            self._queue = AsyncClient.from_url(calls.given.url).queue(calls.given.name, **calls.settings)

    async def _publish(self, item: tuple[bytes, str]) -> None:
        await self._queue.client.publish(TOPIC, item[0], shard_key=item[1], router=self._calls.given.name)

    async def _taken(self, count: int) -> list[Any]:
        found: list[Any] = []
        while some := await self._queue.read_many(self._calls.given.batch):
            found += some
        assert len(found) == count
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
