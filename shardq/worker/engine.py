"""The common parts of both workers: a lane of threads for each queue, what these share, and the lifespans around."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, cast

from shardq.client import AsyncQueue, Queue
from shardq.worker.application import Application, Lifespan
from shardq.worker.beats import Beats
from shardq.worker.call import is_async
from shardq.worker.contexts import Contexts
from shardq.worker.empty import is_empty
from shardq.worker.lane import Lane
from shardq.worker.outcome import Verb
from shardq.worker.plan import WorkerPlan, plans
from shardq.worker.schedules import ScheduleKeeper
from shardq.worker.slots import shares
from shardq.worker.state import sum_of
from shardq.worker.telling import Teller
from shardq.worker.trouble import raised


class Engine:
    """Works on *queues*, which have weights. A worker runs: `start`, `work` within its lifespans, `close`."""

    def __init__(
        self,
        queues: Mapping[Queue, int],
        handle: Callable[..., Any] | Application,
        plan: WorkerPlan,
        *,
        forks: bool = False,
    ) -> None:
        self.handle, self._plan, self._forks = handle, plan, forks
        self.contexts = Contexts()
        self.teller = Teller(plan.on_dead, self.contexts.fresh)
        self.beats = Beats(next(iter(queues)).client.name)
        own = shares(plan.concurrency, [*queues.values()])
        self._queues = [*queues]
        self._application = handle if isinstance(handle, Application) else None
        self._schedules = ScheduleKeeper(self._queues, self._application, plan)
        self.lanes = [
            Lane(self, queue, each, share, forks=forks)
            for queue, each, share in zip(queues, plans(plan), own, strict=False)
        ]

    def needs_loop(self, lifespans: Sequence[Lifespan]) -> bool:
        """Return whether anything needs an event loop, or one of *lifespans*."""
        if self.teller.is_async or any(isinstance(each, AbstractAsyncContextManager) for each in lifespans):
            return True
        if self._forks:
            return False
        return self._application.is_async if self._application else is_async(self.handle)

    def lifespans(self) -> Sequence[Lifespan]:
        """Return what is to be entered before `work`; nothing if each child process does that."""
        return self._application.lifespans() if self._application and not self._forks else ()

    @contextmanager
    def entered(self, lifespans: Sequence[Lifespan]) -> Iterator[None]:
        """Enter these *lifespans*, which are plain. Jobs have the context that they leave."""
        with ExitStack() as stack:
            for each in lifespans:
                stack.enter_context(cast("AbstractContextManager[Any]", each))
            self.contexts.keep()
            yield

    @asynccontextmanager
    async def entered_async(self, lifespans: Sequence[Lifespan]) -> AsyncIterator[None]:
        """Do as `entered`, for lifespans of both kinds."""
        async with AsyncExitStack() as stack:
            for each in lifespans:
                if isinstance(each, AbstractAsyncContextManager):
                    await stack.enter_async_context(each)
                else:
                    stack.enter_context(each)
            self.contexts.keep()
            yield

    def start(self) -> None:
        """Begin to keep leases, and to give a sign of life."""
        self.beats.start()
        for lane in self.lanes:
            lane.start()

    def work(self, loop: Any = None, async_queues: Mapping[str, AsyncQueue] | None = None) -> None:
        """Let all lanes work, the first one in this thread. When one has ended, the others are stopped."""
        for lane in self.lanes:
            lane.open(loop, (async_queues or {}).get(lane.name))
        self._schedules.start()
        failures: list[BaseException] = []

        def work(lane: Lane) -> None:
            try:
                lane.work()
            except BaseException as error:  # noqa: BLE001 (run raises it)
                failures.append(error)
            self.stop()

        first, *others = self.lanes
        threads = [
            threading.Thread(target=work, args=(lane,), name="shardq-worker-lane", daemon=True) for lane in others
        ]
        for thread in threads:
            thread.start()
        work(first)
        for thread in threads:
            thread.join()
        raised(failures[0] if failures else None)

    def close(self) -> None:
        """End all threads and processes, but for those that heed nothing."""
        self._schedules.close()
        for lane in self.lanes:
            lane.close()
        self.beats.end()
        self.teller.close()

    async def close_loop(self) -> None:
        """Let nobody in the loop wait for threads, which may run on for ever."""
        for lane in self.lanes:
            if lane.crossing is not None:
                await lane.crossing.close()

    def stop(self) -> None:
        """Let `work` end. Safe within a signal handler."""
        for lane in self.lanes:
            lane.stop()

    def leave(self) -> None:
        """Let `work` end, with the grace over at once."""
        for lane in self.lanes:
            lane.leave()

    @property
    def tally(self) -> Mapping[Verb, int]:
        """How many messages were decided upon, by what was decided."""
        return sum_of([lane.state.tally for lane in self.lanes])

    @property
    def hangs(self) -> int:
        """How many functions run."""
        return sum(lane.hangs for lane in self.lanes)

    def end_if_empty(self) -> None:
        """Stop all lanes if nothing of any queue is left to do: a task of one may write to another."""
        if all(is_empty(queue) for queue in self._queues):
            self.stop()

    def is_stuck(self) -> bool:
        """Whether no slot does anything useful any more."""
        return sum(lane.stuck() for lane in self.lanes) >= self._plan.concurrency

    def kill_children(self) -> None:
        """Kill all child processes, before this process ends at once."""
        for lane in self.lanes:
            lane.kill_children()
