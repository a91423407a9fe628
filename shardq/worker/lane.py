"""One queue of a Worker: threads of which each does whatever is next: it runs a handler, reads, or settles.

No thread only reads or only settles. A thread that has read messages runs a handler itself, and wakes another thread,
which reads on. A thread that finds no handler to run settles. So on an idle queue one thread reads, handles and acks a
message without a switch of threads. Each thread that is woken wakes the next one, as long as there is more to do.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, TypeAlias, cast

from shardq.client import Delivery, Queue
from shardq.errors import BackendError, DurabilityUnknown, ProcessDied, QueueMissing
from shardq.model import DeliveryView
from shardq.ops.read.give_back import unread
from shardq.telemetry import enabled
from shardq.timing import Entry
from shardq.timing.aside import Aside
from shardq.worker import guard
from shardq.worker.application import Application, limit_of
from shardq.worker.children import Children
from shardq.worker.contexts import Contexts
from shardq.worker.empty import WAIT
from shardq.worker.ending import LOOK, PARTING
from shardq.worker.jobs import charge, keeping, next_look, settle
from shardq.worker.keeper import Keeper, seen_lost
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
Order: TypeAlias = Literal["stop", "over", "nudge", "look"] | BaseException


class Owner(Protocol):
    """The worker of a lane."""

    handle: Callable[[DeliveryView], object]
    application: Application | None
    limits: Application | None
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
        given = cast("Callable[..., object]", owner.handle) if forks else None
        self._children = Children(given, jobs.client.codecs, self._start_limit) if given is not None else None
        self._clock = jobs.state.clock
        self.state = self._state = WorkerState(plan.concurrency, plan.read_ahead, share)
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()  # its put is safe within a signal handler
        self._stopped = threading.Event()
        self._left = threading.Event()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._reader: int | None = None
        self._waking = False
        self._traced = self._speaks = False
        self._reads = Trouble(jobs.name, "reading")
        self._settles = Trouble(jobs.name, "settling")
        self._events = _KeeperEvents(self)
        self._keeper = Keeper(jobs.client, jobs.state, plan, self._events)
        self._late = Aside()

    def start(self) -> None:
        """Begin to keep leases and to give a sign of life, which must not wait for a child; then try a child."""
        self._keeper.start()
        if self._children:
            self._children.check()

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
        if not self._late.wait(RETURN_TIMEOUT):
            log.warning("the worker ends before on_error has been told of all time limits")

    def _await_killed(self) -> None:
        """Wait for the threads whose child processes were just killed: they do not hang."""
        end = self._clock.monotonic() + PARTING
        while self._state.busy and self._clock.monotonic() < end:
            time.sleep(LOOK)

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
                if self._state.stop():
                    end = self._clock.monotonic() + self._plan.grace
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
            if not self._waking and (self._state.more or self._state.life in (DRAINING, RETURNING)):
                self._wake_one()

    def _wake_one(self) -> None:
        """Wake or start one more thread, which wakes the next one if there is more to do. The caller has the lock."""
        if self._idle:
            self._waking = True
            self._idle.pop().release()
        elif self._threads < self._plan.concurrency + 2:  # one thread that reads, one that settles
            thread = threading.Thread(target=self._live, name=f"shardq-worker-{self._threads + 1}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # this process can have no more threads; the others go on
                if not self._threads:
                    raise
                return
            self._threads += 1
            self._waking = True

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
        lock, state = self._lock, self._state
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
                action = state.next()
                if action is None:
                    if state.life == STOPPED:
                        self._orders.put("over")
                        return
                    self._idle.append(wakeup)
                elif not self._waking and state.more:
                    self._wake_one()
            job = None
            if isinstance(action, Job):
                job, outcome = action, self._run(action)
            elif action is None:
                report, woken = None, True
                wakeup.acquire()
            else:
                report = self._performed(action)

    def _performed(self, action: Read | SettleJobs | LookLater) -> Report:
        if isinstance(action, LookLater):
            self._jobs.client.timer.call_at(self._clock.monotonic() + action.seconds, self._orders.put, "look")
            return lambda: None
        try:
            return self._read(action) if isinstance(action, Read) else self._settle(action)
        except BaseException as error:  # noqa: BLE001 (raised by run)
            self._orders.put(error)
            self._stopped.wait()
            if isinstance(action, Read):
                return lambda: self._read_over(action, failed=True)
            return lambda: self._state.settled(action.jobs)

    def _run(self, job: Job) -> Outcome:
        outcome = self._handled(job)
        if self._speaks:
            log_done(job, outcome)
        return outcome

    def _handled(self, job: Job) -> Outcome:
        outcome = self._owner.contexts.fresh().run(
            guard.performed, self._called, job, self._jobs, self._plan.backoff, self._state.max_deliveries
        )
        job.ended = self._clock.monotonic()
        if job.message == LEASED and seen_lost(job):  # the handler may have stopped for that
            self._events.lost(job)
        return outcome

    def _called(self, job: Job) -> object:
        limit = self._start_limit(job) if self._children is None else None
        try:
            if not self._traced:
                return self._call(job, job.delivery)
            with cast("Delivery", job.delivery).processing():
                return self._call(job, job.delivery)
        finally:
            if limit is not None:
                limit.cancel()

    def _start_limit(self, job: Job) -> Entry | None:
        """Note that the handler of *job* starts. Return the timer's entry for its time limit, if it has one."""
        job.started = self._clock.monotonic()
        limit = limit_of(self._owner.limits, self._plan, job.delivery)
        if not limit:
            return None
        return self._jobs.client.timer.call_at(job.started + limit, self._late, partial(self._overdue, job, limit))

    def _overdue(self, job: Job, limit: float) -> None:
        """The time limit of *job* is over. No timer waits for this, since it calls functions of the program."""
        if job.message != LEASED:
            return
        if (then := next_look(job, limit, self._clock.monotonic())) is not None:
            self._jobs.client.timer.call_at(then, self._late, partial(self._overdue, job, limit))
            return
        application = self._owner.application
        context = self._owner.contexts.fresh()
        late, outcome = context.run(guard.overdue, job.delivery, limit, application, self._plan.backoff)
        with self._lock:
            running = self._state.decide(job, outcome)
        if not running:  # its handler ended just now, and in time
            return
        # First, since the program may take long to be told.
        self._interrupt(job)
        self._nudge()
        log_overrun(job, limit, outcome, self._state.max_deliveries)
        if application is not None:
            context.run(application.tell, job.delivery, late)

    def _call(self, job: Job, delivery: DeliveryView) -> object:
        if self._children is None:
            return self._owner.handle(delivery)
        try:
            return self._children.run(job, self._jobs.state.config)
        except ProcessDied as error:
            application = self._owner.application
            if application is None:
                raise
            if not delivery.lost:  # else it was killed since its time was over, or its lease: that was told
                application.tell(delivery, error)
            raise application.judged(delivery, error) from None

    def _read(self, action: Read) -> Report:
        state = self._state
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
        gone = bool(found) and self._stopped.is_set() and self._unread(found)
        took = self._clock.monotonic() - began
        return lambda: self._read_over(action, [] if gone else found, took)

    def _read_fails(self, action: Read, error: Exception) -> Report:
        with self._lock:
            self._state.redis_fails()
            self._state.acked(action.acks)
        self._nudge()  # acks that got no answer are settled by themselves, meanwhile
        self._stopped.wait(self._reads.failed(error))
        return self._state.read_failed

    def _read_over(
        self, action: Read, found: Sequence[Delivery] = (), took: float = 0.0, *, failed: bool = False
    ) -> None:
        self._state.acked(action.acks)
        if failed:
            self._state.read_failed()
        else:
            self._keeper.keep(self._state.arrived(found, took))

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
            log_late(settle(self._jobs, action, self._owner.teller), action.verb)
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
        """Let the handler see that its lease is lost; a child process is killed."""
        job.delivery.lost = True
        if self._children:
            self._children.kill(job)

    def kill_children(self) -> None:
        """Kill its child processes, before this process ends at once."""
        if self._children:
            self._children.kill_all()


class _KeeperEvents:
    """What the keeper calls, in its thread or the timer's."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

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
        return not self._lane._owner.is_stuck()
