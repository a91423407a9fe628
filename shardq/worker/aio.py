"""`AsyncWorker`: one event loop; a task per message, and at most one read and one settling call under way."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, Unpack, cast

from shardq.client import AsyncDelivery, AsyncQueue
from shardq.errors import BackendError, ConfigError, DurabilityUnknown
from shardq.model import DeliveryView
from shardq.ops.read import MAX_COUNT
from shardq.ops.read_call import unread
from shardq.telemetry import enabled
from shardq.worker.keeper import Keeper
from shardq.worker.outcome import ACK, Outcome
from shardq.worker.plan import Plan, PlanSettings
from shardq.worker.signals import MAX_WAIT, stopping
from shardq.worker.state import AWAY, RUNNING, STOPPED, Job, Read, Settle, WorkerState
from shardq.worker.trouble import (
    CALL_TIMEOUT,
    FATAL,
    RETURN_TIMEOUT,
    Trouble,
    judged,
    log_late,
    log_left,
    log_lost,
    overran,
)

log = logging.getLogger("shardq")
BLOCK = 2.0
"""Seconds that one read waits, or tries to; `stop` cancels it."""

Handler: TypeAlias = Callable[[AsyncDelivery], Awaitable[object]]


class AsyncWorker:
    """The twin of `Worker` for an `AsyncQueue` and an async handler; lost and overdue handlers are cancelled.

    Leases are extended from a thread, so that a handler that blocks the loop keeps its messages.
    """

    def __init__(self, jobs: AsyncQueue, handle: Handler, **settings: Unpack[PlanSettings]) -> None:
        self._plan = Plan(**settings)
        self._jobs, self._handle = _checked(jobs, handle), handle
        self._clock = jobs.state.clock
        self._state = WorkerState(self._plan.concurrency, self._plan.read_ahead)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._scheduled = False
        self._stop_asked = False
        self._failure: BaseException | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._traced = False
        self._reads = Trouble(jobs.name, "reading")
        self._settles = Trouble(jobs.name, "settling")
        self._watched = _Watched(self)
        self._keeper = Keeper(jobs.client, jobs.state, self._state.held, self._plan, self._watched)

    async def run(self) -> None:
        """Work until `stop` is called or a signal comes; then finish what runs, give back the rest, and return.

        A worker runs once. BackendErrors are waited out; ConfigError, ServerUnfit and ClosedError are raised. When the
        task that awaits it is cancelled, the handlers are cancelled, too, and their messages are given back at once.
        """
        if self._loop is not None or self._state.life != RUNNING:
            raise ConfigError("an AsyncWorker runs once: make a new one")
        self._loop = asyncio.get_running_loop()
        with stopping(self.stop, lambda: None, self._plan.signals):
            self._keeper.start()
            if self._stop_asked:
                self._stop()
            self._later()
            self._beat()
            try:
                await self._over.wait()
            except asyncio.CancelledError:
                self._stop()
                self._end_of_grace()
                await self._over.wait()
                raise
            finally:
                for timer in filter(None, (self._timer, self._heart)):
                    timer.cancel()
                await self._loop.run_in_executor(None, self._keeper.close)
        if self._failure is not None:
            raise self._failure

    def _beat(self) -> None:
        self._heart = asyncio.get_running_loop().call_later(MAX_WAIT, self._beat)

    def stop(self) -> None:
        """Let `run` come to its end; from any thread, a handler or a signal handler. Idempotent."""
        self._stop_asked = True
        if self._loop is not None:
            self._call(self._stop)

    def _call(self, function: Callable[..., object], *args: object) -> None:
        """Call *function* in the loop, from any thread; the loop may be gone by then."""
        try:
            cast("asyncio.AbstractEventLoop", self._loop).call_soon_threadsafe(function, *args)
        except RuntimeError:
            log.debug("the event loop of the worker is closed")

    # --- the end ----------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._state.stop():
            self._timer = asyncio.get_running_loop().call_later(self._plan.grace, self._end_of_grace)
            if self._reading:
                self._reading.cancel()
            self._later()

    def _end_of_grace(self) -> None:
        for job in self._state.grace_over():
            self._tell(job)
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(RETURN_TIMEOUT, self._end_of_return)
        self._later()

    def _end_of_return(self) -> None:
        log_left(self._state.give_up())
        self._later()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._stop()

    # --- doing what is next -----------------------------------------------------------------------------------------

    def _later(self) -> None:
        """Advance once what happens in this run of the loop has happened."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        try:
            self._advance()
        except BaseException as error:  # noqa: BLE001 (a worker never dies in silence: run raises it)
            self._failure = self._failure or error
            self._over.set()

    def _advance(self) -> None:
        state, loop = self._state, asyncio.get_running_loop()
        while (action := state.next()) is not None:
            if isinstance(action, Job):
                action.handle = loop.create_task(self._run(action))
            else:
                task = loop.create_task(self._read(action) if isinstance(action, Read) else self._settle(action))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if state.life == STOPPED:
            self._over.set()

    async def _run(self, job: Job) -> None:
        delivery = cast("AsyncDelivery", job.delivery)
        job.started = self._clock.monotonic()
        outcome = ACK
        try:
            if delivery.lost:  # told before its first step
                raise asyncio.CancelledError
            if self._traced:
                with delivery.processing():
                    await self._handle(delivery)
            else:
                await self._handle(delivery)
        except BaseException as error:  # noqa: BLE001 (SystemExit of a handler is its failure, not the worker's end)
            outcome = judged(error, delivery, self._plan.backoff, self._state.max_deliveries)
        job.handle = None
        self._state.ended(job, outcome)
        self._later()

    async def _read(self, action: Read) -> None:
        found: Sequence[AsyncDelivery] = ()
        self._reading = asyncio.current_task()  # not earlier: cancelled before its first step it would never take it
        try:
            if self._state.life not in (RUNNING, AWAY):
                raise asyncio.CancelledError
            found = await self._jobs.read_many(
                min(action.credit, MAX_COUNT),
                block=BLOCK,
                visibility_timeout=self._plan.visibility_timeout,
                timeout=CALL_TIMEOUT,
            )
            if self._state.life == AWAY and self._state.redis_answers():
                self._reads.over()
            self._traced = enabled()  # once per batch: asking costs as much as running a handler
            self._state.max_deliveries = self._jobs.state.config.max_deliveries
            if found and self._state.life not in (RUNNING, AWAY):
                await self._unread(found)
                found = ()
        except FATAL as error:
            self._fail(error)
        except BackendError as error:
            self._state.redis_fails()
            await _pause(self._reads.began(error))
        except asyncio.CancelledError:
            self._stop()  # by stop already, or somebody cancels all tasks
        except Exception as error:  # noqa: BLE001 (raised by run)
            self._fail(error)
        self._reading = None
        self._state.arrived(found)
        self._later()

    async def _unread(self, found: Sequence[AsyncDelivery]) -> None:
        """Give back, uncounted, what came after the stop."""
        rows = [delivery.received for delivery in found]
        await self._jobs.client.run(unread(self._jobs.state, rows, CALL_TIMEOUT))

    async def _settle(self, action: Settle) -> None:
        report = self._state.settled
        try:
            log_late(await self._told(action), action.verb)
            self._settles.over()
        except FATAL as error:
            self._fail(error)
        except DurabilityUnknown as error:  # it happened
            log.warning("queue %r: %s", self._jobs.name, error)
        except BackendError as error:
            await _pause(self._settles.began(error))
            report = self._state.unsettled
        except asyncio.CancelledError:
            self._stop()
        except Exception as error:  # noqa: BLE001 (raised by run)
            self._fail(error)
        report(action.jobs)
        self._later()

    async def _told(self, action: Settle) -> Sequence[DeliveryView]:
        deliveries = [cast("AsyncDelivery", job.delivery) for job in action.jobs]
        outcomes = [cast("Outcome", job.outcome) for job in action.jobs]
        if action.verb == "ack":
            return await self._jobs.ack_many(deliveries, timeout=CALL_TIMEOUT)
        texts = [outcome.text for outcome in outcomes]
        if action.verb == "reject":
            return await self._jobs.reject_many(deliveries, texts, timeout=CALL_TIMEOUT)
        delays = [outcome.delay for outcome in outcomes]
        return await self._jobs.nack_many(deliveries, delay=delays, error=texts, timeout=CALL_TIMEOUT)

    # --- what the keeper saw ----------------------------------------------------------------------------------------

    def _tell(self, job: Job) -> None:
        job.delivery.lost = True
        if job.handle is not None and job.started:  # a task that is cancelled before its first step never takes it
            job.handle.cancel()

    def _lose(self, job: Job) -> None:
        before = job.message
        told = self._state.lost(job)
        if job.message != before:
            log_lost(job)
        if told:
            self._tell(job)
        self._later()

    def _overrun(self, job: Job) -> None:
        plan, state = self._plan, self._state
        if state.decide(job, overran(job, plan.time_limit or 0.0, plan.backoff, state.max_deliveries)):
            self._tell(job)
        self._later()


class _Watched:
    """What the keeper calls, in its thread; it tells the loop."""

    def __init__(self, worker: AsyncWorker) -> None:
        self._worker = worker
        self._asked = self._answered = 0

    def lost(self, job: Job) -> None:
        job.delivery.lost = True  # a handler that blocks the loop can see it
        self._worker._call(self._worker._lose, job)

    def overdue(self, job: Job) -> None:
        self._worker._call(self._worker._overrun, job)

    def goes_round(self) -> bool:
        answered = self._answered == self._asked
        if answered:
            self._asked += 1
            self._worker._call(self._answer)
        return answered and not self._worker._state.stuck

    def _answer(self) -> None:
        self._answered = self._asked


async def _pause(delay: float) -> None:
    try:
        await asyncio.sleep(delay)
    except asyncio.CancelledError:
        return  # the end of the worker: what waited goes on


def _checked(jobs: AsyncQueue, handle: object) -> AsyncQueue:
    if not isinstance(jobs, AsyncQueue):
        raise ConfigError(f"an AsyncWorker takes an AsyncQueue; for {type(jobs).__name__} use Worker")
    if not (inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(getattr(handle, "__call__", None))):  # noqa: B004
        raise ConfigError("an AsyncWorker needs an async handler (async def); plain functions run in a Worker")
    return jobs
