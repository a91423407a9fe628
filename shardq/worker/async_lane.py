"""One queue of an AsyncWorker: a task for each message, and at most one read and one settling call at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from shardq.client import AsyncDelivery, AsyncQueue
from shardq.errors import BackendError, DurabilityUnknown, QueueMissing
from shardq.model import DeliveryView
from shardq.ops.read.give_back import unread
from shardq.telemetry import enabled
from shardq.worker import guard
from shardq.worker.application import Application, limit_of
from shardq.worker.contexts import Contexts
from shardq.worker.empty import WAIT
from shardq.worker.jobs import charge, divided, keeping, next_look, note_unread, terms_of
from shardq.worker.keeper import Keeper, seen_lost
from shardq.worker.outcome import Outcome
from shardq.worker.plan import Plan
from shardq.worker.slots import Share
from shardq.worker.state import AWAY, LEASED, RUNNING, STOPPED, Job, LookLater, Read, SettleJobs, WorkerState
from shardq.worker.telling import AsyncTeller
from shardq.worker.trouble import (
    CALL_TIMEOUT,
    FATAL,
    RETURN_TIMEOUT,
    Trouble,
    dead_of,
    log_done,
    log_late,
    log_left,
    log_lost,
    log_overrun,
)

log = logging.getLogger("shardq")
BLOCK = 2.0
"""Seconds that one read waits for messages; `stop` cancels it."""

Handler: TypeAlias = Callable[[AsyncDelivery], Awaitable[object]]


class Owner(Protocol):
    """The worker of a lane."""

    handle: Handler
    application: Application | None
    limits: Application | None
    teller: AsyncTeller
    contexts: Contexts

    def is_stuck(self) -> bool:
        """Whether no slot does anything useful any more."""

    async def end_if_empty(self) -> None:
        """Stop all lanes if nothing of any queue is left to do."""


class AsyncLane:
    """Reads messages of *jobs*, and awaits the *owner*'s handler for each. All but `call` is for its event loop."""

    def __init__(self, owner: Owner, jobs: AsyncQueue, plan: Plan, share: Share | None) -> None:
        self._owner, self._jobs, self._plan = owner, jobs, plan
        self._clock = jobs.state.clock
        self.state = self._state = WorkerState(plan.concurrency, plan.read_ahead, share)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._scheduled = False
        self._failure: BaseException | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._traced = self._speaks = False
        self._reads = Trouble(jobs.name, "reading")
        self._settles = Trouble(jobs.name, "settling")
        self._keeper_events = _KeeperEvents(self)
        self._keeper = Keeper(jobs.client, jobs.state, plan, self._keeper_events)

    def start(self) -> None:
        """Begin to keep leases, and to give a sign of life."""
        self._loop = asyncio.get_running_loop()
        self._keeper.start()

    async def work(self) -> None:
        """Work until `stop`, and then until the lane holds nothing. Raise what ended it."""
        self._schedule()
        try:
            await self._over.wait()
        except asyncio.CancelledError:
            self.stop()
            self._end_of_grace()
            await self._over.wait()
            raise
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the thread that keeps leases, which may take as long as an extension."""
        self._keeper.close()

    def cancel_timer(self) -> None:
        """Let no timer call this lane any more."""
        if self._timer is not None:
            self._timer.cancel()

    def nudge(self) -> None:
        """Slots came free. May be called from any thread."""
        self.call(self._schedule)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call *function* in the loop, from any thread; nothing happens if the loop is closed already."""
        try:
            cast("asyncio.AbstractEventLoop", self._loop).call_soon_threadsafe(function, *args)
        except RuntimeError:
            log.debug("the event loop of the worker is closed")

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Read no more, and end when what runs has ended, or the grace is over."""
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
        self.stop()

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
                action.handle = loop.create_task(self._run(action), context=self._owner.contexts.fresh())
            elif isinstance(action, LookLater):
                loop.call_later(action.seconds, self._look)
            else:
                task = loop.create_task(self._read(action) if isinstance(action, Read) else self._settle(action))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if state.life == STOPPED:
            self._over.set()

    def _look(self) -> None:
        self._state.look()
        self._schedule()

    async def _run(self, job: Job) -> None:
        job.started = self._clock.monotonic()
        outcome = await guard.performed_async(
            self._called, job, self._jobs, self._plan.backoff, self._state.max_deliveries
        )
        job.ended = self._clock.monotonic()
        job.handle = None
        if self._speaks:
            log_done(job, outcome)
        if job.message == LEASED and seen_lost(job):  # the handler may have stopped for that
            self._lose(job)
        self._state.ended(job, outcome)
        self._schedule()

    async def _called(self, job: Job) -> object:
        delivery = cast("AsyncDelivery", job.delivery)
        limit = limit_of(self._owner.limits, self._plan, delivery)
        entry = self._jobs.client.timer.call_at(job.started + limit, self._overrun, job, limit) if limit else None
        try:
            if delivery.lost:  # its lease was lost before the task's first step
                raise asyncio.CancelledError
            if not self._traced:
                return await self._owner.handle(delivery)
            with delivery.processing():
                return await self._owner.handle(delivery)
        finally:
            if entry is not None:
                entry.cancel()

    async def _read(self, action: Read) -> None:
        found: Sequence[AsyncDelivery] = ()
        acks, began = action.acks, self._clock.monotonic()
        charge(acks, began)
        self._reading = asyncio.current_task()  # only now: a task that is cancelled before its first step runs nothing
        try:
            if self._state.life not in (RUNNING, AWAY):
                raise asyncio.CancelledError
            if (op := keeping(self._jobs, acks)) is not None:
                await self._jobs.client.run(op)
            found = await self._jobs.read_many(
                action.credit,
                block=BLOCK if self._plan.until is None else WAIT,
                visibility_timeout=self._plan.visibility_timeout,
                ack=[cast("AsyncDelivery", job.delivery) for job in acks],
                timeout=CALL_TIMEOUT,
            )
            if self._state.life == AWAY and self._state.redis_answers():
                self._reads.succeeded()
            self._speaks = log.isEnabledFor(logging.DEBUG)
            self._traced = enabled()  # once per batch, because the check costs as much as running a handler
            self._state.max_deliveries = self._jobs.state.config.max_deliveries
            self._state.pace.lasts = self._plan.visibility_timeout or self._jobs.state.config.visibility_timeout
            found = await self._looked_at(found)
        except QueueMissing as error:  # it is not declared yet
            acks = await self._read_fails(acks, error)
        except FATAL as error:
            self._fail(error)
        except BackendError as error:
            acks = await self._read_fails(acks, error)
        except asyncio.CancelledError:
            self.stop()  # the read was cancelled by `stop`, or by a program that cancels all tasks
        except Exception as error:  # noqa: BLE001 (raised by run)
            self._fail(error)
        self._reading = None
        self._state.acked(acks)
        self._keeper.keep(self._state.arrived(found, self._clock.monotonic() - began))
        self._schedule()

    async def _looked_at(self, found: Sequence[AsyncDelivery]) -> Sequence[AsyncDelivery]:
        """Return what of a read's messages is handled, and end the worker if that shall be when nothing is left."""
        if found and self._state.life not in (RUNNING, AWAY):
            await self._unread(found)
            return ()
        if not found and self._plan.until is not None:
            await self._owner.end_if_empty()
        return found

    async def _read_fails(self, acks: Sequence[Job], error: Exception) -> tuple[()]:
        """Note it, and wait a while. Return no acks: those that got no answer are settled by themselves, meanwhile."""
        self._state.redis_fails()
        self._state.acked(acks)
        self._schedule()
        if isinstance(error, QueueMissing) and self._plan.until is not None:
            await self._owner.end_if_empty()
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
            self.stop()
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
        if action.verb == "give back":
            return await self._give_back(action.jobs)
        texts = [outcome.text for outcome in outcomes]
        if action.verb == "reject":
            late = await self._jobs.reject_many(deliveries, texts, timeout=CALL_TIMEOUT)
        else:
            delays = [outcome.delay for outcome in outcomes]
            late = await self._jobs.nack_many(deliveries, delay=delays, error=texts, timeout=CALL_TIMEOUT)
        await self._owner.teller.tell(dead_of(deliveries, outcomes))
        return late

    async def _give_back(self, given: Sequence[Job]) -> Sequence[DeliveryView]:
        at_once, later = divided(given)
        if at_once:
            rows = [job.delivery.received for job in at_once]
            await self._jobs.client.run(unread(self._jobs.state, rows, CALL_TIMEOUT))
            note_unread(at_once)
        if not later:
            return ()
        deliveries = [cast("AsyncDelivery", job.delivery) for job in later]
        delays, texts = terms_of(later)
        return await self._jobs.nack_many(deliveries, delay=delays, error=texts, counted=False, timeout=CALL_TIMEOUT)

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

    def _overrun(self, job: Job, limit: float) -> None:
        """The time limit of the handler of *job* is over. The client's timer calls this in the loop."""
        if job.message != LEASED:
            return
        if (then := next_look(job, limit, self._clock.monotonic())) is not None:
            self._jobs.client.timer.call_at(then, self._overrun, job, limit)
            return
        application = self._owner.application
        context = self._owner.contexts.fresh()
        late, outcome = context.run(guard.overdue, job.delivery, limit, application, self._plan.backoff)
        if self._state.decide(job, outcome):
            self._cancel(job)
        self._schedule()
        log_overrun(job, limit, outcome, self._state.max_deliveries)
        if application is not None:
            context.run(application.tell, job.delivery, late)


class _KeeperEvents:
    """What the keeper calls, in its thread or the loop. Each call is passed on to the event loop."""

    def __init__(self, lane: AsyncLane) -> None:
        self._lane = lane
        self._probes = self._answers = 0

    def lost(self, job: Job) -> None:
        job.delivery.lost = True  # a handler that blocks the loop can see it
        self._lane.call(self._lane._lose, job)

    def is_responsive(self) -> bool:
        answered = self._answers == self._probes  # the loop has run since the probe before
        if answered:
            self._probes += 1
            self._lane.call(self._answer)
        return answered and not self._lane._owner.is_stuck()

    def _answer(self) -> None:
        self._answers = self._probes


async def _pause(delay: float) -> None:
    try:
        await asyncio.sleep(delay)
    except asyncio.CancelledError:
        return  # the worker ends: the call that paused continues at once
