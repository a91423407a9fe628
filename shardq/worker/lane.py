"""One queue of a worker: threads of which each does whatever is next: it runs a handler, reads, or settles.

No thread only reads or only settles. A thread that has read messages runs a handler itself, and wakes another thread,
which reads on. A thread that finds no handler to run settles. So on an idle queue one thread reads, handles and acks a
message without a switch of threads. Each thread that is woken wakes the next one, as long as there is more to do.

Async handlers are run by an event loop, which takes all that may start by one call (`loop_hands`). What a thread does
that is no job is an *errand*: a plain function that an async one waits for, or to look whether a job's time is over.
A thread does these first, since jobs wait for them; so there are as many threads as that takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, TypeAlias, cast

from shardq.client import AsyncQueue, Delivery, Queue
from shardq.errors import BackendError, DurabilityUnknown, QueueMissing
from shardq.ops.read.give_back import unread
from shardq.telemetry import enabled
from shardq.timing import Entry
from shardq.worker import guard
from shardq.worker.application import Application, calls_of
from shardq.worker.call import Call, CallOf, ChildCall, Environment
from shardq.worker.children import Children
from shardq.worker.contexts import Contexts
from shardq.worker.crossing import Crossing
from shardq.worker.empty import WAIT
from shardq.worker.ending import LOOK, PARTING
from shardq.worker.jobs import charge, keeping, next_look, settle
from shardq.worker.keeper import Keeper, seen_lost
from shardq.worker.loop_hands import Ended, LoopHands
from shardq.worker.outcome import ACK, Outcome
from shardq.worker.plan import Plan
from shardq.worker.signals import MAX_WAIT
from shardq.worker.slots import Share
from shardq.worker.state import (
    AWAY,
    DRAINING,
    LEASED,
    RETURNING,
    STOPPED,
    Action,
    Job,
    LookLater,
    Read,
    SettleJobs,
    WorkerState,
)
from shardq.worker.telling import Teller
from shardq.worker.trouble import (
    CALL_TIMEOUT,
    FATAL,
    RETURN_TIMEOUT,
    Trouble,
    log_done,
    log_late,
    log_left,
    log_lost,
    log_overrun,
    raised,
)

log = logging.getLogger("shardq")
BLOCK = 1.0
"""Seconds that one read waits; `stop` ends it, unless the server forbids CLIENT UNBLOCK."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05
"""Seconds between two tries to end a waiting read."""

Report: TypeAlias = Callable[[], object]
Errand: TypeAlias = Callable[[], None]
Order: TypeAlias = Literal["stop", "leave", "over", "nudge", "look"] | BaseException


class Owner(Protocol):
    """The worker of a lane."""

    handle: Callable[..., object] | Application
    teller: Teller
    contexts: Contexts

    def is_stuck(self) -> bool:
        """Whether no slot does anything useful any more."""

    def end_if_empty(self) -> None:
        """Stop all lanes if nothing of any queue is left to do."""


class Lane:
    """Reads messages of *jobs*, and calls the *owner*'s handler for each; in child processes if it *forks*."""

    def __init__(self, owner: Owner, jobs: Queue, plan: Plan, share: Share | None, *, forks: bool) -> None:
        self._owner, self._jobs, self._plan = owner, jobs, plan
        self._children = Children(owner.handle, jobs.client.codecs, self._start_limit) if forks else None
        self._clock = jobs.state.clock
        self.state = self._state = WorkerState(plan.concurrency, plan.read_ahead, share)
        if share is not None:
            share.nudge = self.nudge
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()  # its put is safe within a signal handler
        self._stopped = threading.Event()
        self._left = threading.Event()
        self._leaving = threading.Event()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._reader: int | None = None
        self._waking = False
        self._traced = self._speaks = False
        self._reads = Trouble(jobs.name, "reading")
        self._settles = Trouble(jobs.name, "settling")
        self._events = _KeeperEvents(self)
        self._keeper = Keeper(jobs.client, jobs.state, plan, self._events)
        self._errands: deque[Errand] = deque()
        self._overdue_jobs: set[Job] = set()
        self._call_of: CallOf
        self._hands: LoopHands | None = None
        self.crossing: Crossing | None = None

    def start(self) -> None:
        """Begin to keep leases and to give a sign of life, which must not wait for a child; then try a child."""
        self._keeper.start()
        if self._children:
            self._children.check()

    def open(self, loop: asyncio.AbstractEventLoop | None, async_queue: AsyncQueue | None) -> None:
        """Take *loop* for what is async, with a queue of its client; None if nothing is."""
        if loop is not None and async_queue is not None:
            self.crossing = Crossing(loop, self.give, async_queue)
            self._hands = LoopHands(loop, self._run_async, self._ended_in_loop, self._owner.contexts.fresh)
        self._call_of = self._calls()

    def _calls(self) -> CallOf:
        owner, children = self._owner, self._children
        environment = Environment(
            self._jobs.name, self._clock, self._plan.time_limit, owner.contexts.fresh, self.crossing
        )
        call_of = calls_of(owner.handle, environment)
        if children is None:
            return call_of
        return lambda delivery: ChildCall(call_of(delivery), children, lambda: self._jobs.state.config)

    def work(self) -> None:
        """Work until `stop`, and then until the lane holds nothing. Raise what ended it."""
        self._nudge()
        self._until_over()

    def close(self) -> None:
        """End all of its threads and processes."""
        with self._lock:
            self._state.stop()
            self._state.give_up()
            self._release_all()
        self._stopped.set()
        self._left.set()
        self._keeper.close()
        if self._children:
            self._children.close()
            self._await_killed()
        if not self._told_overdue():
            log.warning("the worker ends before on_error has been told of all time limits")

    def _await_killed(self) -> None:
        """Wait for the threads whose child processes were just killed: they do not hang."""
        end = self._clock.monotonic() + PARTING
        while self._state.busy and self._clock.monotonic() < end:
            time.sleep(LOOK)

    def _told_overdue(self) -> bool:
        """Wait until all overdue jobs are told of, for RETURN_TIMEOUT at most."""
        end, pause = self._clock.monotonic() + RETURN_TIMEOUT, threading.Event()
        while self._overdue_jobs and self._clock.monotonic() < end:
            pause.wait(LONGEST_PAUSE)
        return not self._overdue_jobs

    def stuck(self) -> int:
        """Return `WorkerState.stuck`."""
        with self._lock:
            return self._state.stuck

    def nudge(self) -> None:
        """Slots came free. It takes no lock: another lane may have its own."""
        self._orders.put("nudge")

    def stop(self) -> None:
        """Read no more, and end when what runs has ended, or the grace is over. Safe within a signal handler."""
        self._orders.put("stop")

    def leave(self) -> None:
        """Do as `stop`, with the grace over at once."""
        self._leaving.set()
        self._orders.put("leave")

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._jobs.name

    @property
    def hangs(self) -> int:
        """How many functions run."""
        return self._state.busy + (self.crossing.running if self.crossing else 0)

    def give(self, errand: Errand) -> None:
        """Let a thread run an *errand*, which raises nothing, soon. Any thread or loop may call this."""
        self._errands.append(errand)
        self._nudge()

    # --- the thread that called work ---------------------------------------------------------------------------------

    def _until_over(self) -> None:
        failure: BaseException | None = None
        end: float | None = None  # of the grace, or of the time to give messages back after it
        while True:
            try:
                order = self._orders.get(timeout=self._wait_time(end))
            except queue.Empty:
                if end is None or self._clock.monotonic() < end:
                    continue
                if not self._end_of_wait():
                    return raised(failure)
                end = self._clock.monotonic() + RETURN_TIMEOUT
                continue
            if order == "over":
                return raised(failure)
            if order in ("nudge", "look"):
                self._go_on(order)
                continue
            if isinstance(order, BaseException):
                failure = failure or order
            with self._lock:
                if self._state.stop() or order == "leave":
                    end = self._clock.monotonic() + (0.0 if order == "leave" else self._plan.grace)
            if not self._stopped.is_set():
                self._stopped.set()
                threading.Thread(target=self._end_read, name="shardq-worker-stop", daemon=True).start()
            self._nudge()

    def _go_on(self, order: Order) -> None:
        if order == "look":
            with self._lock:
                self._state.look()
        self._nudge()

    def _wait_time(self, end: float | None) -> float:
        return MAX_WAIT if end is None else min(MAX_WAIT, max(0.0, end - self._clock.monotonic()))

    def _end_read(self) -> None:
        """End the read that waits for messages, with several tries. Runs in a thread, so that the grace goes on."""
        pause = SHORTEST_PAUSE
        while (reader := self._reader) is not None and not self._left.is_set():
            self._jobs.client.end_wait(reader)
            self._left.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _end_of_wait(self) -> bool:
        """The grace, or the time to give messages back, is over. False if there is nothing left to wait for."""
        with self._lock:
            if self._state.life == DRAINING:
                running = self._state.grace_over()
            else:
                log_left(self._state.give_up())
                return False
        for job in running:
            self._interrupt(job)
        self._nudge()
        return True

    # --- its threads -----------------------------------------------------------------------------------------------

    def _nudge(self) -> None:
        with self._lock:
            if not self._waking and (self._errands or self._state.more or self._state.life in (DRAINING, RETURNING)):
                self._wake_one()

    def _wake_one(self) -> None:
        """Wake or start one more thread, which wakes the next one if there is more to do. The caller has the lock."""
        if self._idle:
            self._waking = True
            self._idle.pop().release()
        elif self._errands or self._threads < self._plan.concurrency + 2:  # one thread that reads, one that settles
            thread = threading.Thread(target=self._live, name=f"shardq-worker-{self._threads + 1}", daemon=True)
            self._waking = True  # before it runs, since it takes that back
            self._threads += 1
            try:
                thread.start()
            except RuntimeError:  # this process can have no more threads; the others go on
                self._waking = False
                self._threads -= 1
                if not self._threads:
                    raise

    def _release_all(self) -> None:
        for wakeup in self._idle:
            wakeup.release()
        self._idle.clear()

    def _live(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (run raises it)
            self._orders.put(error)

    def _work(self) -> None:
        lock, state, wake_loop = self._lock, self._state, self._hands.wake if self._hands else _nothing
        wakeup = threading.Lock()
        wakeup.acquire()
        report: Report | None = None
        job: Job | None = None
        outcome = ACK
        woken = True
        while True:
            with lock:
                if woken:
                    self._waking = woken = False
                if job is not None:
                    state.ended(job, outcome)
                elif report is not None:
                    report()
                action = self._next()
                if action is None:
                    if self._is_over(wakeup):
                        return
                elif not self._waking and (self._errands or state.more):
                    self._wake_one()
            wake_loop()
            job = report = None
            if isinstance(action, Job):
                job, outcome = action, self._run(action)
            elif action is None:
                woken = True
                wakeup.acquire()
            else:
                report = self._performed(action)

    def _is_over(self, wakeup: threading.Lock) -> bool:
        """Let a thread end, or rest until it is woken: there is nothing to do. The caller has the lock."""
        if self._state.life == STOPPED:
            self._orders.put("over")
            return True
        self._idle.append(wakeup)
        return False

    def _next(self) -> Action | Errand | None:
        """Return what is next, after handing over the async jobs that start. The caller has the lock."""
        if self._errands:
            return self._errands.popleft()
        action = self._state.next()
        while self._hands is not None and isinstance(action, Job) and action.call.is_async:
            self._hands.inbox.append(action)
            action = self._state.next()
        return action

    def _performed(self, action: Read | SettleJobs | LookLater | Errand) -> Report | None:
        if isinstance(action, LookLater):
            self._jobs.client.timer.call_at(self._clock.monotonic() + action.seconds, self._orders.put, "look")
            return None
        if not isinstance(action, (Read, SettleJobs)):
            action()
            return None
        try:
            return self._read(action) if isinstance(action, Read) else self._settle(action)
        except BaseException as error:  # noqa: BLE001 (raised by run)
            self._orders.put(error)
            self._stopped.wait()
            if isinstance(action, Read):
                return lambda: self._read_over(action, failed=True)
            return lambda: self._state.settled(action.jobs)

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _run(self, job: Job) -> Outcome:
        outcome = self._owner.contexts.fresh().run(
            guard.performed,
            self._called, job, self._jobs, self._plan.backoff, self._state.max_deliveries, self._leaving.is_set,
        )  # fmt: skip
        self._finish(job, outcome)
        return outcome

    async def _run_async(self, job: Job) -> None:
        job.handle = asyncio.current_task()  # not before: a task that is cancelled before its first step tells nobody
        outcome = await guard.performed_async(
            self._awaited, job, self._jobs, self._plan.backoff, self._state.max_deliveries, self._leaving.is_set
        )
        job.handle = None
        self._finish(job, outcome)
        if self._hands is not None:  # it runs there
            self._hands.over(job, outcome)

    def _called(self, job: Job) -> object:
        limit = self._start_limit(job) if self._children is None else None
        try:
            if not self._traced:
                return job.call.run(job)
            with cast("Delivery", job.delivery).processing():
                return job.call.run(job)
        finally:
            if limit is not None:
                limit.cancel()

    async def _awaited(self, job: Job) -> object:
        limit = self._start_limit(job)
        try:
            if job.delivery.lost:  # before the task's first step
                raise asyncio.CancelledError
            if not self._traced:
                return await job.call.run(job)
            with cast("Delivery", job.delivery).processing():
                return await job.call.run(job)
        finally:
            if limit is not None:
                limit.cancel()

    def _finish(self, job: Job, outcome: Outcome) -> None:
        """Note the end of what ran for *job*, in its thread or loop."""
        job.ended = self._clock.monotonic()
        if self._speaks:
            log_done(job, outcome)
        if job.message == LEASED and seen_lost(job):  # the handler may have stopped for that
            self._events.lost(job)

    def _ended_in_loop(self, ended: Ended) -> None:
        with self._lock:
            for job, outcome in ended:
                self._state.ended(job, outcome)
        self._nudge()

    def _start_limit(self, job: Job) -> Entry | None:
        """Note that the handler of *job* starts. Return the timer's entry for its time limit, if it has one."""
        job.started = self._clock.monotonic()
        return None if job.call.limit is None else self._look_at(job, job.started + job.call.limit)

    def _look_at(self, job: Job, when: float) -> Entry:
        """Look at *when* whether the time of *job* is over. No timer waits for that: it calls functions of users."""
        return self._jobs.client.timer.call_at(when, self.give, partial(self._overdue, job))

    def _overdue(self, job: Job) -> None:
        if job.message != LEASED:
            return
        if (then := next_look(job, self._clock.monotonic())) is not None:
            self._look_at(job, then)
            return
        self._overdue_jobs.add(job)
        try:
            self._owner.contexts.fresh().run(self._end_overdue, job)
        finally:
            self._overdue_jobs.discard(job)

    def _end_overdue(self, job: Job) -> None:
        late, outcome = guard.overdue(job, self._plan.backoff)
        with self._lock:
            running = self._state.decide(job, outcome)
        if not running:  # its handler ended just now, and in time
            return
        # First, since the program may take long to be told.
        self._interrupt(job)
        self._nudge()
        log_overrun(job, outcome, self._state.max_deliveries)
        job.call.tell(job.delivery, late)

    # --- reads and settles ----------------------------------------------------------------------------------------

    def _read(self, action: Read) -> Report:
        state = self._state
        if self.crossing is not None:
            self.crossing.check_open()
        self._reader, began = threading.get_ident(), self._clock.monotonic()
        charge(action.acks, began)
        try:
            if (op := keeping(self._jobs, action.acks)) is not None:
                self._jobs.client.run(op)
            found = self._jobs.read_many(
                action.credit,
                block=BLOCK if self._plan.until is None else WAIT,
                visibility_timeout=self._plan.visibility_timeout,
                ack=[cast("Delivery", job.delivery) for job in action.acks],
                timeout=CALL_TIMEOUT,
            )
            if not found and self._plan.until is not None:
                self._owner.end_if_empty()
        except QueueMissing as error:  # it is not declared yet
            if self._plan.until is not None:
                self._owner.end_if_empty()
            return self._read_fails(action, error)
        except FATAL:
            raise
        except BackendError as error:
            return self._read_fails(action, error)
        finally:
            self._reader = None
        if state.life == AWAY:
            self._reads.succeeded()
            with self._lock:
                state.redis_answers()
        self._speaks = log.isEnabledFor(logging.DEBUG)
        self._traced = enabled()  # once per batch, because the check costs as much as running a handler
        state.max_deliveries = self._jobs.state.config.max_deliveries
        state.pace.lasts = self._plan.visibility_timeout or self._jobs.state.config.visibility_timeout
        if found and self._stopped.is_set() and self._unread(found):
            found = []
        calls, took = [self._call_of(delivery) for delivery in found], self._clock.monotonic() - began
        return lambda: self._read_over(action, found, calls, took)

    def _read_fails(self, action: Read, error: Exception) -> Report:
        with self._lock:
            self._state.redis_fails()
            self._state.acked(action.acks)
        self._nudge()  # acks that got no answer are settled by themselves, meanwhile
        self._stopped.wait(self._reads.failed(error))
        return self._state.read_failed

    def _read_over(
        self,
        action: Read,
        found: Sequence[Delivery] = (),
        calls: Sequence[Call] = (),
        took: float = 0.0,
        *,
        failed: bool = False,
    ) -> None:
        self._state.acked(action.acks)
        if failed:
            self._state.read_failed()
            return
        jobs = self._state.arrived(found, took)
        for job, call in zip(jobs, calls, strict=True):
            job.call = call
        self._keeper.keep(jobs)

    def _unread(self, found: Sequence[Delivery]) -> bool:
        """Give back what came after the stop, without counting the delivery. If that fails (False) it is nacked."""
        rows = [delivery.received for delivery in found]
        try:
            self._jobs.client.run(unread(self._jobs.state, rows, CALL_TIMEOUT))
        except BackendError:
            return False
        for delivery in found:
            delivery._lease.settle()
        return True

    def _settle(self, action: SettleJobs) -> Report:
        jobs, state = action.jobs, self._state
        try:
            log_late(settle(self._jobs, action, self._owner.teller, self.crossing), action.verb)
        except FATAL:
            raise
        except DurabilityUnknown as error:  # the messages are settled
            log.warning("queue %r: %s", self._jobs.name, error)
        except BackendError as error:
            self._left.wait(self._settles.failed(error))
            return lambda: state.unsettled(jobs)
        self._settles.succeeded()
        return lambda: state.settled(jobs)

    def _interrupt(self, job: Job) -> None:
        """Let the handler see that its lease is lost; a task is cancelled, a child process is killed."""
        job.delivery.lost = True
        if self._children:
            self._children.kill(job)
        if self._hands is not None and (job.call.is_async or job.tasks):
            self._hands.cancel(job)

    def kill_children(self) -> None:
        """Kill its child processes, before this process ends at once."""
        if self._children:
            self._children.kill_all()


class _KeeperEvents:
    """What the keeper calls, in its thread or the timer's."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._probes = self._answers = 0

    def lost(self, job: Job) -> None:
        lane = self._lane
        with lane._lock:
            before = job.message
            running = lane._state.lost(job)
            changed = job.message != before
        if changed:
            log_lost(job)
        if running:
            lane._interrupt(job)
        lane._nudge()

    def is_responsive(self) -> bool:
        return self._loop_answers() and not self._lane._owner.is_stuck()

    def _loop_answers(self) -> bool:
        """Whether the event loop, if there is one, has run since it was asked before."""
        if (crossing := self._lane.crossing) is None:
            return True
        answered = self._answers == self._probes
        if answered:
            self._probes += 1
            with contextlib.suppress(RuntimeError):  # the loop is closed
                crossing.loop.call_soon_threadsafe(self._answer)
        return answered

    def _answer(self) -> None:
        self._answers = self._probes


def _nothing() -> None:
    """What is done to wake an event loop that is not there."""
