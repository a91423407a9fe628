"""Tells at once when a queue gets active: one watcher a queue, however many listen.

While somebody is active, the watcher looks once a second. While nobody is, it waits for a message to be written, and
looks only every few seconds, or when something is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from shardq.client import AsyncClient
from shardq.clock import Clock
from shardq.errors import BackendError, ShardqError
from shardq.exporter.errors import ToldError
from shardq.exporter.policy import Numbers, Policy, numbers_of
from shardq.exporter.poller import FRESH_SECONDS
from shardq.model.stats import QueueStats
from shardq.ops.inspect.arrivals import arrival
from shardq.ops.queue.state import QueueState

log = logging.getLogger("shardq.exporter")

LOOK_INTERVAL: Final = 5.0
"""Seconds after which a watcher looks by itself: for what was paused or limited, and has become runnable."""
PAUSE: Final = 0.1
"""Seconds between two looks at whether numbers may be asked for again."""


class StatsRequest(Protocol):
    """How a watcher asks."""

    async def __call__(self, queue: str, *, early: bool = False) -> QueueStats:
        """Return the stats of a queue; new ones *early*, if it is known that they have changed."""


Partitions = Callable[[str], Mapping[str, QueueStats]]
"""Returns the stats of each partition of a queue, as they were asked for last; of any other, those of the queue."""


class Listening:
    """One who wants to know whether a queue is active by *policy*."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.is_active: bool | None = None
        """The last answer; None: nothing yet."""
        self._error: ShardqError | None = None
        self._is_over = False
        self._changed = asyncio.Event()

    def tell(self, numbers: Numbers) -> bool:
        """Tell the numbers of now. Return whether the queue is active by this policy."""
        is_active = self.policy.is_active(numbers)
        if is_active is not self.is_active:
            self.is_active = is_active
            self._changed.set()
        return is_active

    def end(self, error: ShardqError | None = None) -> None:
        """Tell that there is no more to tell, since *error*."""
        self._is_over, self._error = True, error
        self._changed.set()

    async def news(self, repeat: float) -> AsyncIterator[bool]:
        """Yield whether the queue is active: now, at each change, and that it is again after *repeat* seconds."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(repeat):
                    await self._changed.wait()
            has_changed = self._changed.is_set()
            self._changed.clear()
            if self._error is not None:
                raise self._error
            if self._is_over:
                return
            if self.is_active is not None and (has_changed or self.is_active):
                yield self.is_active


class Watchers:
    """The watchers of all queues to which somebody listens."""

    def __init__(self, client: AsyncClient, ask: StatsRequest, partitions: Partitions) -> None:
        self._client, self._ask, self._partitions = client, ask, partitions
        self._watched: dict[str, Watcher] = {}

    @contextmanager
    def listening(self, queue: str, policy: Policy) -> Iterator[Listening]:
        """Listen to a queue in this context. The last one who leaves it ends the watcher."""
        watcher = self._watched.get(queue)
        if watcher is None or watcher.task.done():
            watcher = self._watched[queue] = Watcher(self._client, queue, self._ask, self._partitions)
        listening = Listening(policy)
        watcher.join(listening)
        try:
            yield listening
        finally:
            watcher.listeners.discard(listening)
            if not watcher.listeners:
                self._forget(queue, watcher)

    def __contains__(self, queue: str) -> bool:
        """Whether the queue is watched."""
        return queue in self._watched

    def __len__(self) -> int:
        """How many queues are watched."""
        return len(self._watched)

    def end(self) -> None:
        """Tell all who listen that there is no more to tell."""
        for watcher in self._watched.values():
            watcher.end()

    async def close(self) -> None:
        """End all watchers."""
        tasks = [watcher.task for watcher in self._watched.values()]
        for queue, watcher in list(self._watched.items()):
            self._forget(queue, watcher)
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, queue: str, watcher: Watcher) -> None:
        if self._watched.get(queue) is watcher:
            del self._watched[queue]
        watcher.stop()


class Watcher:
    """Looks at one queue as long as its task runs, and tells all listeners."""

    def __init__(self, client: AsyncClient, queue: str, ask: StatsRequest, partitions: Partitions) -> None:
        self._client, self._queue, self._ask, self._partitions = client, queue, ask, partitions
        self._clock: Clock = client.clock
        self.listeners: set[Listening] = set()
        self._numbers: Numbers | None = None
        self._is_over = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def join(self, listening: Listening) -> None:
        """Add one who listens, and tell it what is known: if that is old, nothing was written since."""
        self.listeners.add(listening)
        if self._numbers is not None:
            listening.tell(self._numbers)

    def stop(self) -> None:
        """Look no more. A cancellation may get lost in a call, so the task also sees this by itself."""
        self._is_over = True
        self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._watch()
        except ShardqError as error:
            self.end(error)
        except Exception:
            log.exception("the watcher of queue %r failed", self._queue)
            self.end(ToldError(f"the watcher of queue {self._queue!r} failed: the log of the scaler says why"))

    def end(self, error: ShardqError | None = None) -> None:
        """Tell all who listen that there is no more to tell, since *error*."""
        for each in list(self.listeners):
            each.end(error)

    async def _watch(self) -> None:
        has_come, seen = False, -1.0
        while not self._is_over:
            begun = self._clock.monotonic()
            stats = await self._look(early=has_come)
            if has_come and stats is not None and stats.time == seen:
                await asyncio.sleep(PAUSE)  # they were asked for early just before
                continue
            has_come, self._numbers = False, None
            if stats is not None:
                seen, self._numbers = stats.time, numbers_of(stats, None)
                has_come = await self._wait_for_news(stats, self._numbers)
            left = FRESH_SECONDS - (self._clock.monotonic() - begun)
            if not has_come and left > 0 and not self._is_over:
                await asyncio.sleep(left)

    async def _look(self, *, early: bool) -> QueueStats | None:
        """Return the stats; None while Redis is away."""
        try:
            return await self._ask(self._queue, early=early)
        except BackendError as error:
            # Those who have heard something stay, and hear more when Redis is back. The others shall not wait.
            for each in [each for each in self.listeners if each.is_active is None]:
                each.end(error)
            return None

    async def _wait_for_news(self, stats: QueueStats, numbers: Numbers) -> bool:
        """Notify all listeners, and wait until the answer might be another one. Return whether a message came."""
        active = [each.tell(numbers) for each in list(self.listeners)]
        if all(active):
            return False
        seconds = FRESH_SECONDS if any(active) else LOOK_INTERVAL
        if numbers.next_due is not None:
            leads = [each.policy.lead for each in self.listeners if not each.is_active]
            seconds = min([seconds, *[max(0.05, numbers.next_due - lead) for lead in leads]])
        # Each partition by itself: `stats` is that of all of them, or of a queue that has no others.
        parts = self._partitions(self._queue)
        if len(parts) < 2:
            return await self._comes_to(self._client.state_of(self._queue, {}), stats, seconds)
        head = self._client.state_of(self._queue, {})
        waits = [
            asyncio.ensure_future(self._comes_to(self._client.state_of_part(head, number, name), each, seconds))
            for number, (name, each) in enumerate(parts.items())
        ]
        try:
            for ended in asyncio.as_completed(waits):
                if await ended:
                    return True
            return False
        finally:
            for wait in waits:
                wait.cancel()

    async def _comes_to(self, state: QueueState, stats: QueueStats, seconds: float) -> bool:
        """Wait up to *seconds* for a message. Return whether one came."""
        with suppress(ShardqError):
            return bool(await self._client.run(arrival(state, len(stats.streams), stats.time, seconds)))
        return False
