"""`Worker`, for programs of threads, and `AsyncWorker`, for those with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Literal, Unpack

from shardq.client import AsyncQueue, Client, Queue
from shardq.errors import ConfigError
from shardq.worker.application import Application
from shardq.worker.checks import check_handle, weights_of
from shardq.worker.crossing import apart, until
from shardq.worker.engine import Engine
from shardq.worker.outcome import Verb
from shardq.worker.own_loop import OwnLoop
from shardq.worker.plan import PlanSettings, planned
from shardq.worker.signals import MAX_WAIT, hosted, stopping
from shardq.worker.trouble import raised


class _Runs:
    """The common part of both workers: they run once, end when they are asked to, and count what they did."""

    _engine: Engine
    _loop: OwnLoop | None = None
    _has_begun = False

    def _begin(self) -> Engine:
        if self._has_begun:
            raise ConfigError(f"each {type(self).__name__} runs once: make a new one")
        self._has_begun = True
        return self._engine

    @property
    def tally(self) -> Mapping[Verb, int]:
        """How many messages were done ("ack"), failed ("nack"), rejected and given back so far."""
        return self._engine.tally

    @property
    def hangs(self) -> int:
        """How many functions run: after `run` has returned, those that still ran when their grace was over.

        Plain ones run in threads, which cannot be ended. A program that has to end anyway calls `os._exit`.
        """
        return self._engine.hangs + (self._loop.pool.running if self._loop else 0)

    def stop(self) -> None:
        """Ask `run` to end. May be called from any thread, handler or signal handler, and more than once.

        It raises nothing.
        """
        self._engine.stop()


class Worker(_Runs):
    """Reads messages of *jobs* and calls `handle(delivery)` for each, until it is stopped.

    *jobs* is a queue, or several with their weights: `{jobs: 3, mails: 1}`. These share the slots of `concurrency` by
    their weights, and what one does not need the others use. *handle* may be a `Tasks`. Plain functions run in threads,
    async ones in an event loop, which has a thread of its own.

    A handler that returns acks its message; one that raises `Nack` or `Reject` does what they say. After any other
    exception the message is delivered again, after the backoff and with the error in `last_error`; after the queue's
    `max_deliveries` it becomes a dead letter. Leases are extended while handlers run. An async handler is cancelled
    when its lease is lost or its time limit is over. With `run_in="processes"` each handler, a plain one, runs in a
    child process, which is killed then; if the process dies, its handler has failed. Settings are those of
    `shardq.worker.plan.Plan`. ConfigError for a bad one.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_deliveries=3)
    >>> message_id = queue.write({"to": "ada"}, shard_key="acme")
    >>> def handle(delivery):
    ...     print("mail to", delivery.payload["to"])
    ...     worker.stop()
    >>> worker = Worker(queue, handle, concurrency=4)
    >>> worker.run()
    mail to ada
    >>> worker.tally["ack"]
    1
    """

    def __init__(
        self,
        jobs: Queue | Mapping[Queue, int],
        handle: Callable[..., object] | Application,
        *,
        run_in: Literal["threads", "processes"] = "threads",
        **settings: Unpack[PlanSettings],
    ) -> None:
        self._plan = planned(Worker, settings, "run_in")
        self._weights = weights_of(jobs, Queue, "Worker", "AsyncWorker")
        check_handle(handle, run_in)
        self._engine = Engine(self._weights, handle, self._plan, forks=run_in == "processes")

    def run(self) -> None:
        """Work until `stop` is called or a signal comes; then finish what runs, give back the rest, and return.

        A worker runs once. After a BackendError it tries again until Redis answers; ConfigError, ServerUnfit and
        ClosedError are raised.
        """
        engine = self._begin()
        wanted = self._plan.signals is not False
        with stopping(self.stop, engine.kill_children, wanted), contextlib.ExitStack() as stack:
            stack.callback(self._close_loop)  # at last: who tells of dead letters may need it
            stack.callback(engine.close)
            engine.start()
            lifespans = engine.lifespans()
            if not engine.needs_loop(lifespans):
                stack.enter_context(engine.entered(lifespans))
                engine.work()
                return
            own = self._loop = OwnLoop(next(iter(self._weights)).client)
            stack.enter_context(own.within(engine.entered_async(lifespans)))
            engine.work(own.loop, {each.name: own.queue(each) for each in self._weights})

    def _close_loop(self) -> None:
        if self._loop is not None:
            self._loop.close(self._engine.close_loop)


class AsyncWorker(_Runs):
    """Does as `Worker`, within an event loop: async functions run there, in tasks, and plain ones in threads.

    Async handlers are cancelled when their lease is lost or their time limit is over. Leases are extended from a
    thread, so that a handler that blocks the loop keeps its messages. Settings are those of
    `shardq.worker.plan.Plan`. ConfigError for a bad one.

    >>> client = AsyncClient.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_deliveries=3)
    >>> message_id = await queue.write({"to": "ada"}, shard_key="acme")
    >>> async def handle(delivery):
    ...     print("mail to", delivery.payload["to"])
    ...     worker.stop()
    >>> worker = AsyncWorker(queue, handle, concurrency=100)
    >>> await worker.run()
    mail to ada
    >>> worker.tally["ack"]
    1
    """

    def __init__(
        self,
        jobs: AsyncQueue | Mapping[AsyncQueue, int],
        handle: Callable[..., object] | Application,
        **settings: Unpack[PlanSettings],
    ) -> None:
        self._plan = planned(AsyncWorker, settings)
        weights = weights_of(jobs, AsyncQueue, "AsyncWorker", "Worker")
        check_handle(handle, "threads")
        self._async_queues = {each.name: each for each in weights}
        self._client = client = Client.beside(next(iter(weights)).client)
        queues = {client.queue_of(client.state_beside(each.state)): weight for each, weight in weights.items()}
        self._engine = Engine(queues, handle, self._plan)

    async def run(self) -> None:
        """Work until `stop` is called or a signal comes; then finish what runs, give back the rest, and return.

        A worker runs once. After a BackendError it tries again until Redis answers; ConfigError, ServerUnfit and
        ClosedError are raised. When the task that awaits `run` is cancelled, the handlers are cancelled, too, and their
        messages are given back at once.
        """
        engine = self._begin()
        wanted = not hosted() if self._plan.signals is None else self._plan.signals
        with stopping(self.stop, lambda: None, wanted):
            try:
                engine.start()
                async with engine.entered_async(engine.lifespans()), _awake():
                    await self._work()
            finally:
                cancelled = await until(apart(self._close, "shardq-worker-close"))
                await engine.close_loop()
            raised(cancelled)

    async def _work(self) -> None:
        """Let the engine work in a thread. If this is cancelled, it leaves at once what it does."""
        loop, failures = asyncio.get_running_loop(), list[BaseException]()

        def work() -> None:
            try:
                self._engine.work(loop, self._async_queues)
            except BaseException as error:  # noqa: BLE001 (run raises it)
                failures.append(error)

        ended = apart(work, "shardq-worker")
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._engine.leave()
            await until(ended)
            raise
        if failures:
            raise failures[0]

    def _close(self) -> None:
        with contextlib.closing(self._client):
            self._engine.close()


@contextlib.asynccontextmanager
async def _awake() -> AsyncIterator[None]:
    """Wake the loop each second, because Python runs signal handlers only while the main thread is awake."""
    loop = asyncio.get_running_loop()
    timer: list[asyncio.TimerHandle] = []

    def wake() -> None:
        timer[:] = [loop.call_later(MAX_WAIT, wake)]

    wake()
    try:
        yield
    finally:
        timer[0].cancel()
