"""One queue of a worker: each of its threads does the next thing: it runs a handler, reads, or settles.

No thread only reads or only settles. A thread that has read messages runs a handler itself, and wakes another thread,
which reads on. A thread that finds no handler to run settles. So on an idle queue one thread reads, handles and acks a
message without a switch of threads. Each thread that is woken wakes the next one, as long as there is more to do.

Async handlers are run by an event loop, which takes all that may start by one call (`loop_hands`). When some have
ended, it begins with those that are next, if these are async, too: no thread is woken for that. A thread's work that is
no job is an *errand*: a plain function that an async one waits for, or a look whether a job's time is over. A thread
does these first, since jobs wait for them; so there are as many threads as that takes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from shardq.client import AsyncQueue, Queue
from shardq.timing import Entry
from shardq.worker import guard
from shardq.worker.application import Application, calls_of
from shardq.worker.beats import Beats
from shardq.worker.call import CallOf, ChildCall, Environment
from shardq.worker.children import Children
from shardq.worker.contexts import Contexts
from shardq.worker.crossing import Crossing
from shardq.worker.ending import LOOK_INTERVAL, PARTING
from shardq.worker.jobs import in_span, in_span_async
from shardq.worker.keeper import Keeper, seen_lost
from shardq.worker.loop_hands import Ended, LoopHands
from shardq.worker.meter import Meter
from shardq.worker.orders import Orders
from shardq.worker.outcome import ACK, GIVE_BACK, Outcome
from shardq.worker.plan import WorkerPlan
from shardq.worker.slots import SlotShare
from shardq.worker.state import (
    DRAINING,
    LEASED,
    RETURNING,
    STOPPED,
    Action,
    LookLater,
    Read,
    SettleJobs,
    WorkerJob,
    WorkerState,
)
from shardq.worker.telling import Teller
from shardq.worker.time_limits import TimeLimits
from shardq.worker.traffic import Report, Traffic
from shardq.worker.trouble import log_done, log_lost

log = logging.getLogger("shardq")
Errand: TypeAlias = Callable[[], None]


class Owner(Protocol):
    """The worker of a lane."""

    handle: Callable[..., object] | Application
    teller: Teller
    contexts: Contexts
    beats: Beats

    def is_stuck(self) -> bool:
        """Whether no slot does anything useful any more."""

    def end_if_empty(self) -> None:
        """Stop all lanes if nothing of any queue is left to do."""


class Lane:
    """Reads messages of *jobs*, and calls the *owner*'s handler for each; in child processes if it *forks*."""

    def __init__(self, owner: Owner, jobs: Queue, plan: WorkerPlan, share: SlotShare | None, *, forks: bool) -> None:
        self._owner, self._jobs, self._plan = owner, jobs, plan
        self._clock, self._fresh = jobs.state.clock, owner.contexts.fresh
        self.state = WorkerState(plan.concurrency, plan.read_ahead, share)
        if share is not None:
            share.nudge = self.nudge
        self.lock = threading.Lock()
        self.stopped, self.left, self._leaving = threading.Event(), threading.Event(), threading.Event()
        self._idle: list[threading.Lock] = []
        self._threads = self._on_errands = 0
        self._waking = False
        self._errands: deque[Errand] = deque()
        self._events = _KeeperEvents(self)
        self.pulse = owner.beats.pulse(self, jobs, plan.concurrency)
        self.meter = Meter(self, jobs, plan.concurrency if share is None else share.part)
        self.keeper = Keeper(jobs.client, jobs.state, plan, self._events, self.pulse)
        self._traffic = Traffic(self, jobs, plan, owner.teller, owner.end_if_empty)
        self._orders = Orders(self, self._clock, plan.grace, self._traffic.end_read)
        self._limits = TimeLimits(jobs, plan.backoff, self.give, self._fresh, self._overdue)
        self._children = Children(owner.handle, jobs.client.codecs, self._limits.start) if forks else None
        self.call_of: CallOf
        self.crossing: Crossing | None = None
        self._hands: LoopHands | None = None

    def start(self) -> None:
        """Begin to keep leases and to give a sign of life, which must not wait for a child; then try a child."""
        handle = self._owner.handle
        self.meter.start(handle.task_names(self._jobs.name) if isinstance(handle, Application) else None)
        self.keeper.start()
        if self._children:
            self._children.check()

    def open(self, loop: asyncio.AbstractEventLoop | None, async_queue: AsyncQueue | None) -> None:
        """Take *loop* for what is async, with a queue of its client; None if nothing is."""
        if loop is not None and async_queue is not None:
            self.crossing = Crossing(loop, self.give, async_queue)
            self._hands = LoopHands(loop, self._run_async, self._ended_in_loop, self._fresh)
        self.call_of = self._calls()

    def _calls(self) -> CallOf:
        children = self._children
        environment = Environment(self._jobs.name, self._clock, self._plan.time_limit, self._fresh, self.crossing)
        call_of = calls_of(self._owner.handle, environment)
        if children is None:
            return call_of
        return lambda delivery: ChildCall(call_of(delivery), children, lambda: self._jobs.state.config)

    def work(self) -> None:
        """Work until `stop`, and then until the lane holds nothing. Raise what ended it."""
        self.wake()
        self._orders.obey()

    def close(self) -> None:
        """End all of its threads and processes."""
        with self.lock:
            self.state.stop()
            self.state.give_up()
            self._release_all()
        self.stopped.set()
        self.left.set()
        self.keeper.close()
        if self._children:
            self._children.close()
            self._await_killed()
        self.meter.close()
        if self._limits.tells:
            log.warning("the worker ends while on_error runs for time limits")

    def _await_killed(self) -> None:
        """Wait for the threads whose child processes were just killed: they do not hang."""
        end = self._clock.monotonic() + PARTING
        while self.state.busy and self._clock.monotonic() < end:
            time.sleep(LOOK_INTERVAL)

    def stuck(self) -> int:
        """Return `WorkerState.stuck`."""
        with self.lock:
            return self.state.stuck

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
        return self.state.busy + (self.crossing.running if self.crossing else 0)

    def give(self, errand: Errand) -> None:
        """Let a thread run an *errand*, which raises nothing, soon. Any thread or loop may call this."""
        self._errands.append(errand)
        self.wake()

    # --- its threads -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake a thread if there is anything to do. Any thread or loop may call this."""
        with self.lock:
            self._wake_for_more()

    def _wake_for_more(self) -> None:
        """Wake one more thread if there is anything to do for it. The caller has the lock."""
        if not self._waking and (self._errands or self.state.more or self.state.life in (DRAINING, RETURNING)):
            self._wake_one()

    def _wake_one(self) -> None:
        """Wake or start one more thread, which wakes the next one if there is more to do. The caller has the lock."""
        if self._idle:
            self._waking = True
            self._idle.pop().release()
        # One thread that reads, one that settles; those on errands may hang.
        elif self._errands or self._threads - self._on_errands < self._plan.concurrency + 2:
            thread = threading.Thread(target=self._live, name=f"shardq-worker-{self._threads + 1}", daemon=True)
            self._waking = True  # before it runs, since it takes that back
            self._threads += 1
            try:
                thread.start()
            except RuntimeError:  # this process can have no more threads; the others continue
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
        lock, state, wake_loop = self.lock, self.state, self._hands.wake if self._hands else _nothing
        wakeup = threading.Lock()
        wakeup.acquire()
        report: Report | None = None
        job: WorkerJob | None = None
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
            wake_loop(reads_on=isinstance(action, Read))
            job = report = None
            if isinstance(action, WorkerJob):
                job, outcome = action, self._run(action)
            elif action is None:
                woken = True
                wakeup.acquire()
            else:
                report = self._performed(action)

    def _is_over(self, wakeup: threading.Lock) -> bool:
        """Let a thread end, or rest until it is woken: there is nothing to do. The caller has the lock."""
        if self.state.life == STOPPED:
            self._orders.put("over")
            return True
        self._idle.append(wakeup)
        return False

    def _next(self) -> Action | Errand | None:
        """Return what is next, after handing over the async jobs that start. The caller has the lock."""
        if self._errands:
            self._on_errands += 1
            return self._errands.popleft()
        self._hand_over()
        return self.state.next()

    def _hand_over(self) -> None:
        if self._hands is not None:
            self._hands.inbox += self.state.start_async()

    def _performed(self, action: Read | SettleJobs | LookLater | Errand) -> Report | None:
        if isinstance(action, LookLater):
            self._jobs.client.timer.call_at(self._clock.monotonic() + action.seconds, self._orders.put, "look")
            return None
        if not isinstance(action, (Read, SettleJobs)):
            action()
            return self._errand_over
        try:
            return self._traffic.read(action) if isinstance(action, Read) else self._traffic.settle(action)
        except BaseException as error:  # noqa: BLE001 (raised by run)
            self._orders.put(error)
            self.stopped.wait()
            return lambda: self._traffic.gave_up(action)

    def _errand_over(self) -> None:
        self._on_errands -= 1

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _run(self, job: WorkerJob) -> Outcome:
        limit = None if self._children else self._limits.start(job)
        outcome = self._fresh().run(
            guard.performed,
            job.call.run if not self._traffic.is_traced else in_span,
            job, self._jobs, self._plan.backoff, self.state.max_deliveries, self._leaving.is_set,
        )  # fmt: skip
        self._finish(job, limit, outcome)
        self._limits.wait(job)
        return outcome

    async def _run_async(self, job: WorkerJob) -> None:
        limit, outcome = self._limits.start(job), GIVE_BACK
        if job.message == LEASED:  # else it was cancelled before its task's first step
            outcome = await guard.performed_async(
                job.call.run if not self._traffic.is_traced else in_span_async,
                job, self._jobs, self._plan.backoff, self.state.max_deliveries, self._leaving.is_set,
            )  # fmt: skip
        self._finish(job, limit, outcome)
        if self._hands is None:  # it runs there
            return
        if self._limits.is_told(job):
            self._limits.after(job, partial(self._hands.over_soon, job, outcome))
        else:
            self._hands.over(job, outcome)

    def _finish(self, job: WorkerJob, limit: Entry | None, outcome: Outcome) -> None:
        """Note the end of what ran for *job*, in its thread or loop."""
        if limit is not None:
            limit.cancel()
        job.ended = self._clock.monotonic()
        if self._traffic.is_measured:
            self.meter.ended(job, outcome)
        if self._traffic.is_logged:
            log_done(job, outcome)
        if job.message == LEASED and seen_lost(job):  # the handler may have stopped for that
            self._events.lost(job)

    def _ended_in_loop(self, ended: Ended) -> None:
        with self.lock:
            for job, outcome in ended:
                self.state.ended(job, outcome)
            self._hand_over()
            self._wake_for_more()

    def _overdue(self, job: WorkerJob, outcome: Outcome) -> bool:
        """The time of *job* is over. False if it has ended just now, and in time."""
        with self.lock:
            running = self.state.decide(job, outcome)
        if running:
            self.interrupt(job)
            self.wake()
        return running

    def interrupt(self, job: WorkerJob) -> None:
        """Let the handler see that its lease is lost; a task is cancelled, a child process is killed."""
        job.delivery.lost = True
        if self._children:
            self._children.kill(job)
        if self._hands is not None and (job.call.is_async or job.tasks):
            self._hands.cancel(job)

    def children(self) -> Sequence[int]:
        """Return the ids of its child processes."""
        return self._children.pids() if self._children else ()

    def kill_children(self) -> None:
        """Kill its child processes, before this process ends at once."""
        if self._children:
            self._children.kill_all()


class _KeeperEvents:
    """The functions that the keeper calls, in its thread or the timer's."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def lost(self, job: WorkerJob) -> None:
        lane = self._lane
        with lane.lock:
            before = job.message
            running = lane.state.lost(job)
            changed = job.message != before
        if changed:
            if lane._traffic.is_measured:
                lane.meter.lost(job)
            log_lost(job)
        if running:
            lane.interrupt(job)
        lane.wake()

    def is_responsive(self) -> bool:
        crossing = self._lane.crossing
        return (crossing is None or crossing.answers()) and not self._lane._owner.is_stuck()


def _nothing(*, reads_on: bool) -> None:
    """Do nothing, in place of waking an event loop that is not there."""
