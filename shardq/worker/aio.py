"""`AsyncWorker`: one event loop with a task for each message, and at most one read and one settling call at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, Unpack, cast

from shardq.client import AsyncDelivery, AsyncQueue
from shardq.errors import BackendError, ConfigError, DurabilityUnknown, QueueMissing
from shardq.model import DeliveryView
from shardq.ops.read.give_back import unread
from shardq.ops.read.read import MAX_COUNT
from shardq.telemetry import enabled
from shardq.worker.jobs import acked, charge, keeping
from shardq.worker.keeper import Keeper, seen_lost
from shardq.worker.outcome import ACK, Outcome
from shardq.worker.plan import PlanSettings, planned
from shardq.worker.signals import MAX_WAIT, hosted, stopping
from shardq.worker.state import AWAY, LEASED, RUNNING, STOPPED, Job, Read, SettleJobs, WorkerState
from shardq.worker.telling import AsyncTeller
from shardq.worker.trouble import (
    CALL_TIMEOUT,
    FATAL,
    RETURN_TIMEOUT,
    Trouble,
    dead_of,
    judged,
    log_late,
    log_left,
    log_lost,
    overran,
)

log = logging.getLogger("shardq")
BLOCK = 2.0
"""Seconds that one read waits for messages; `stop` cancels it."""

Handler: TypeAlias = Callable[[AsyncDelivery], Awaitable[object]]


class AsyncWorker:
    """Reads messages of *jobs* and awaits `handle(delivery)` for each, in tasks, until it is stopped.

    A handler that returns acks its message; one that raises `Nack` or `Reject` does what they say; after any other
    exception the message is delivered again, after the backoff. A handler is cancelled when its lease is lost or its
    time limit is over. Leases are extended from a thread, so that a handler that blocks the loop keeps its messages.
    Settings are those of `shardq.worker.plan.Plan`. ConfigError for a bad one, or for a handler that is not async.
    """

    def __init__(self, jobs: AsyncQueue, handle: Handler, **settings: Unpack[PlanSettings]) -> None:
        self._plan = planned(AsyncWorker, settings)
        self._jobs, self._handle = _checked(jobs, handle), handle
        self._clock = jobs.state.clock
        self._state = WorkerState(self._plan.concurrency, self._plan.read_ahead)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._scheduled = False
        self._stop_requested = False
        self._failure: BaseException | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_timer: asyncio.TimerHandle | None = None
        self._traced = False
        self._reads = Trouble(jobs.name, "reading")
        self._settles = Trouble(jobs.name, "settling")
        self._teller = AsyncTeller(self._plan.on_dead)
        self._keeper_events = _KeeperEvents(self)
        self._keeper = Keeper(jobs.client, jobs.state, self._plan, self._keeper_events)

    async def run(self) -> None:
        """Work until `stop` is called or a signal comes; then finish what runs, give back the rest, and return.

        A worker runs once. After a BackendError it tries again until Redis answers; ConfigError, ServerUnfit and
        ClosedError are raised. When the task that awaits `run` is cancelled, the handlers are cancelled, too, and their
        messages are given back at once.
        """
        if self._loop is not None or self._state.life != RUNNING:
            raise ConfigError("an AsyncWorker runs once: make a new one")
        self._loop = asyncio.get_running_loop()
        wanted = not hosted() if self._plan.signals is None else self._plan.signals
        with stopping(self.stop, lambda: None, wanted):
            self._keeper.start()
            if self._stop_requested:
                self._stop()
            self._schedule()
            self._wake_regularly()
            try:
                await self._over.wait()
            except asyncio.CancelledError:
                self._stop()
                self._end_of_grace()
                await self._over.wait()
                raise
            finally:
                for timer in filter(None, (self._timer, self._wake_timer)):
                    timer.cancel()
                await self._loop.run_in_executor(None, self._keeper.close)
                await self._teller.close()
            if self._failure is not None:
                raise self._failure

    def _wake_regularly(self) -> None:
        """Wake the loop each second, because Python runs signal handlers only while the main thread is awake."""
        self._wake_timer = asyncio.get_running_loop().call_later(MAX_WAIT, self._wake_regularly)

    def stop(self) -> None:
        """Ask `run` to end. May be called from any thread, handler or signal handler, and more than once."""
        self._stop_requested = True
        if self._loop is not None:
            self._call(self._stop)

    def _call(self, function: Callable[..., object], *args: object) -> None:
        """Call *function* in the loop, from any thread; nothing happens if the loop is closed already."""
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
            self._schedule()

    def _end_of_grace(self) -> None:
        for job in self._state.grace_over():
            self._cancel(job)
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(RETURN_TIMEOUT, self._end_of_return)
        self._schedule()

    def _end_of_return(self) -> None:
        log_left(self._state.give_up())
        self._schedule()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._stop()

    # --- doing what is next -----------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Let `_advance` run once, after all events of this iteration of the loop were reported to the state."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._advance_safely)

    def _advance_safely(self) -> None:
        self._scheduled = False
        try:
            self._advance()
        except BaseException as error:  # noqa: BLE001 (run raises it)
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
        limit = self._plan.time_limit
        entry = self._jobs.client.timer.call_at(job.started + limit, self._overrun, job) if limit else None
        outcome = ACK
        try:
            if delivery.lost:  # its lease was lost before the task's first step
                raise asyncio.CancelledError
            if self._traced:
                with delivery.processing():
                    value = await self._handle(delivery)
            else:
                value = await self._handle(delivery)
            outcome = acked(self._jobs, value)
        except BaseException as error:  # noqa: BLE001 (SystemExit of a handler is its failure, not the worker's end)
            outcome = judged(error, delivery, self._plan.backoff, self._state.max_deliveries)
        job.ended = self._clock.monotonic()
        if entry is not None:
            entry.cancel()
        job.handle = None
        if job.message == LEASED and seen_lost(job):  # the handler may have stopped for that
            self._lose(job)
        self._state.ended(job, outcome)
        self._schedule()

    async def _read(self, action: Read) -> None:
        found: Sequence[AsyncDelivery] = ()
        acks = action.acks
        charge(acks, self._clock.monotonic())
        self._reading = asyncio.current_task()  # only now: a task that is cancelled before its first step runs nothing
        try:
            if self._state.life not in (RUNNING, AWAY):
                raise asyncio.CancelledError
            if (op := keeping(self._jobs, acks)) is not None:
                await self._jobs.client.run(op)
            found = await self._jobs.read_many(
                min(action.credit, MAX_COUNT),
                block=BLOCK,
                visibility_timeout=self._plan.visibility_timeout,
                ack=[cast("AsyncDelivery", job.delivery) for job in acks],
                timeout=CALL_TIMEOUT,
            )
            if self._state.life == AWAY and self._state.redis_answers():
                self._reads.succeeded()
            self._traced = enabled()  # once per batch, because the check costs as much as running a handler
            self._state.max_deliveries = self._jobs.state.config.max_deliveries
            if found and self._state.life not in (RUNNING, AWAY):
                await self._unread(found)
                found = ()
        except QueueMissing as error:  # it is not declared yet
            acks = await self._read_fails(acks, error)
        except FATAL as error:
            self._fail(error)
        except BackendError as error:
            acks = await self._read_fails(acks, error)
        except asyncio.CancelledError:
            self._stop()  # the read was cancelled by `_stop`, or by a program that cancels all tasks
        except Exception as error:  # noqa: BLE001 (raised by run)
            self._fail(error)
        self._reading = None
        self._state.acked(acks)
        self._keeper.keep(self._state.arrived(found))
        self._schedule()

    async def _read_fails(self, acks: Sequence[Job], error: Exception) -> tuple[()]:
        """Note it, and wait a while. Return no acks: those that got no answer are settled by themselves, meanwhile."""
        self._state.redis_fails()
        self._state.acked(acks)
        self._schedule()
        await _pause(self._reads.failed(error))
        return ()

    async def _unread(self, found: Sequence[AsyncDelivery]) -> None:
        """Give back the messages that came after the stop; their deliveries are not counted."""
        rows = [delivery.received for delivery in found]
        await self._jobs.client.run(unread(self._jobs.state, rows, CALL_TIMEOUT))
        for delivery in found:
            delivery._lease.settle()

    async def _settle(self, action: SettleJobs) -> None:
        report = self._state.settled
        try:
            log_late(await self._send(action), action.verb)
            self._settles.succeeded()
        except FATAL as error:
            self._fail(error)
        except DurabilityUnknown as error:  # the messages are settled
            log.warning("queue %r: %s", self._jobs.name, error)
        except BackendError as error:
            await _pause(self._settles.failed(error))
            report = self._state.unsettled
        except asyncio.CancelledError:
            self._stop()
        except Exception as error:  # noqa: BLE001 (raised by run)
            self._fail(error)
        report(action.jobs)
        self._schedule()

    async def _send(self, action: SettleJobs) -> Sequence[DeliveryView]:
        """Settle the deliveries in Redis; those whose leases had ended."""
        charge(action.jobs, self._clock.monotonic())
        deliveries = [cast("AsyncDelivery", job.delivery) for job in action.jobs]
        outcomes = [cast("Outcome", job.outcome) for job in action.jobs]
        if action.verb == "ack":
            if (op := keeping(self._jobs, action.jobs)) is not None:
                await self._jobs.client.run(op)
            return await self._jobs.ack_many(deliveries, timeout=CALL_TIMEOUT)
        texts = [outcome.text for outcome in outcomes]
        if action.verb == "reject":
            late = await self._jobs.reject_many(deliveries, texts, timeout=CALL_TIMEOUT)
        else:
            delays = [outcome.delay for outcome in outcomes]
            late = await self._jobs.nack_many(deliveries, delay=delays, error=texts, timeout=CALL_TIMEOUT)
        await self._teller.tell(dead_of(self._jobs.name, deliveries, texts))
        return late

    # --- events of the keeper ---------------------------------------------------------------------------------------

    def _cancel(self, job: Job) -> None:
        job.delivery.lost = True
        if job.handle is not None and job.started:  # before its first step the task itself looks at `lost`
            job.handle.cancel()

    def _lose(self, job: Job) -> None:
        before = job.message
        running = self._state.lost(job)
        if job.message != before:
            log_lost(job)
        if running:
            self._cancel(job)
        self._schedule()

    def _overrun(self, job: Job) -> None:
        """The time limit of the handler of *job* is over. The client's timer calls this in the loop."""
        if job.message != LEASED:
            return
        plan, state = self._plan, self._state
        if state.decide(job, overran(job, plan.time_limit or 0.0, plan.backoff, state.max_deliveries)):
            self._cancel(job)
        self._schedule()


class _KeeperEvents:
    """What the keeper calls, in its thread or the loop. Each call is passed on to the event loop."""

    def __init__(self, worker: AsyncWorker) -> None:
        self._worker = worker
        self._probes = self._answers = 0

    def lost(self, job: Job) -> None:
        job.delivery.lost = True  # a handler that blocks the loop can see it
        self._worker._call(self._worker._lose, job)

    def is_responsive(self) -> bool:
        answered = self._answers == self._probes  # the loop has run since the probe before
        if answered:
            self._probes += 1
            self._worker._call(self._answer)
        return answered and not self._worker._state.stuck

    def _answer(self) -> None:
        self._answers = self._probes


async def _pause(delay: float) -> None:
    try:
        await asyncio.sleep(delay)
    except asyncio.CancelledError:
        return  # the worker ends: the call that paused continues at once


def _checked(jobs: AsyncQueue, handle: object) -> AsyncQueue:
    if not isinstance(jobs, AsyncQueue):
        raise ConfigError(f"an AsyncWorker takes an AsyncQueue; for {type(jobs).__name__} use Worker")
    if not (inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(getattr(handle, "__call__", None))):  # noqa: B004
        raise ConfigError("an AsyncWorker needs an async handler (async def); plain functions run in a Worker")
    return jobs
