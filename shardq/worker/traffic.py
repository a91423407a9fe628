"""The traffic of one queue of a worker with Redis: messages are read, and settled.

A thread that has done either returns a report, which the lane calls when it has its lock: so the state changes at the
end of one call and the begin of the next in one go.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from shardq.client import Delivery, Queue
from shardq.errors import BackendError, DurabilityUnknown, QueueMissing
from shardq.telemetry.gate import tracing
from shardq.telemetry.measures import measuring
from shardq.worker.beats import Pulse
from shardq.worker.call import CallOf, MessageCall
from shardq.worker.crossing import Crossing
from shardq.worker.empty import WAIT_SECONDS
from shardq.worker.jobs import charge, deliveries_of, keeping, settle, unread_all
from shardq.worker.keeper import Keeper
from shardq.worker.meter import Meter
from shardq.worker.plan import WorkerPlan
from shardq.worker.state import AWAY, Read, SettleJobs, WorkerJob, WorkerState
from shardq.worker.telling import Teller
from shardq.worker.trouble import CALL_TIMEOUT, FATAL_ERRORS, Trouble, log_late

log = logging.getLogger("shardq")
BLOCK = 1.0
"""Seconds that one read waits; `stop` ends it, unless the server forbids CLIENT UNBLOCK."""
MIN_PAUSE, MAX_PAUSE = 0.001, 0.05
"""Seconds between two tries to end a waiting read."""

Report: TypeAlias = Callable[[], object]


class TrafficHost(Protocol):
    """A lane, as its parts see it."""

    state: WorkerState
    lock: threading.Lock
    stopped: threading.Event
    left: threading.Event
    crossing: Crossing | None
    call_of: CallOf
    keeper: Keeper
    pulse: Pulse
    meter: Meter

    def wake(self) -> None:
        """Wake a thread if there is anything to do."""

    def interrupt(self, job: WorkerJob) -> None:
        """Let the handler of *job* see that its lease is lost."""


class Traffic:
    """Reads messages of *jobs*, and settles them, for a *lane*. *teller* tells of dead letters.

    *end_if_empty* ends the worker if nothing is left to do. `is_traced`, `is_measured` and `is_logged` are whether
    handlers run in spans, are measured, and whether each one's end is logged.
    """

    def __init__(
        self, lane: TrafficHost, jobs: Queue, plan: WorkerPlan, teller: Teller, end_if_empty: Callable[[], None]
    ) -> None:
        self._lane, self._jobs, self._plan, self._teller = lane, jobs, plan, teller
        self._end_if_empty, self._clock = end_if_empty, jobs.state.clock
        queue = f"queue {jobs.name!r}"
        self._reads = Trouble(f"{queue} cannot be read", f"{queue} can be read again")
        messages = f"messages of {queue}"
        self._settles = Trouble(f"{messages} cannot be settled", f"{messages} can be settled again")
        self._reader: int | None = None
        self.is_traced = self.is_measured = self.is_logged = False

    def read(self, action: Read) -> Report:
        """Read, and find out what the messages call."""
        state, lane = self._lane.state, self._lane
        if lane.crossing is not None:
            lane.crossing.check_open()
        self._reader, began = threading.get_ident(), self._clock.monotonic()
        charge(action.acks, began)
        # In a queue with partitions, no one of them is in all trips: there the keeper reports.
        if began >= lane.pulse.due_at and self._jobs.state.parts is None:
            self._jobs.state.rider = lane.pulse.ride(began)
        try:
            found = self._found(action)
        except QueueMissing as error:  # it is not declared yet
            if self._plan.until is not None:
                self._end_if_empty()
            return self._read_fails(action, error)
        except FATAL_ERRORS:
            raise
        except BackendError as error:
            return self._read_fails(action, error)
        finally:
            self._reader = None
            self._leave_rider()
        if state.life == AWAY:
            self._reads.succeeded()
            with lane.lock:
                state.redis_answers()
        self._look_around()
        if found and lane.stopped.is_set() and self._unread(found):
            found = []
        calls, took = [lane.call_of(delivery) for delivery in found], self._clock.monotonic() - began
        return lambda: self._arrived(action, found, calls, took)

    def _leave_rider(self) -> None:
        """If the read ended before it took a beat along, as where there is no such queue yet, that was not told."""
        rider, self._jobs.state.rider = self._jobs.state.rider, None
        if rider is not None:
            rider.left()

    def _found(self, action: Read) -> Sequence[Delivery]:
        jobs, plan, acks = self._jobs, self._plan, action.acks
        if (op := keeping(jobs, acks)) is not None:
            acks = jobs.client.run(op)
        found = jobs.read_many(
            action.credit,
            block=BLOCK if plan.until is None else WAIT_SECONDS,
            visibility_timeout=plan.visibility_timeout,
            ack=deliveries_of(acks),
            timeout=CALL_TIMEOUT,
        )
        if not found and plan.until is not None:
            self._end_if_empty()
        return found

    def _look_around(self) -> None:
        """Note once per batch what each job needs to know: a look costs as much as running a handler."""
        self.is_logged, self.is_traced = log.isEnabledFor(logging.DEBUG), tracing()
        self.is_measured = measuring()
        state, config = self._lane.state, self._jobs.state.config
        state.max_deliveries = config.max_deliveries
        state.pace.lasts = self._plan.visibility_timeout or config.visibility_timeout

    def _read_fails(self, action: Read, error: Exception) -> Report:
        lane = self._lane
        with lane.lock:
            lane.state.redis_fails()
            self._acked(action)
        lane.wake()  # acks that got no answer are settled by themselves, meanwhile
        lane.stopped.wait(self._reads.failed(error))
        return lane.state.read_failed

    def _arrived(self, action: Read, found: Sequence[Delivery], calls: Sequence[MessageCall], took: float) -> None:
        state = self._lane.state
        self._acked(action)
        jobs = state.arrived(found, took)
        for job, call in zip(jobs, calls, strict=True):
            job.call = call
        self._lane.keeper.keep(jobs)

    def _acked(self, action: Read) -> None:
        """Note what became of piggybacked acks. The caller has the lane's lock."""
        acked = self._lane.state.acked(action.acks)
        self._lane.pulse.ledger.count(acked, "ack")
        if self.is_measured:
            self._lane.meter.settled(acked, "ack")

    def _unread(self, found: Sequence[Delivery]) -> bool:
        """Give back what came after the stop, without counting the delivery. If that fails (False) it is nacked."""
        try:
            self._jobs.client.run(unread_all(self._jobs, found))
        except BackendError:
            return False
        for delivery in found:
            delivery._lease.settle()
        return True

    def end_read(self) -> None:
        """End the read that waits for messages, with several tries: it may be about to begin, or to wait."""
        pause = MIN_PAUSE
        while self._lane.state.is_reading and not self._lane.left.is_set():
            if (reader := self._reader) is not None:
                self._jobs.client.end_wait(reader)
            self._lane.left.wait(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def settle(self, action: SettleJobs) -> Report:
        """Settle what was decided."""
        jobs, state = action.jobs, self._lane.state
        try:
            log_late(settle(self._jobs, action, self._teller, self._lane.crossing), action.verb)
        except FATAL_ERRORS:
            raise
        except DurabilityUnknown as error:  # the messages are settled
            log.warning("queue %r: %s", self._jobs.name, error)
        except BackendError as error:
            self._lane.left.wait(self._settles.failed(error))
            return lambda: state.unsettled(jobs)
        self._settles.succeeded()
        self._lane.pulse.ledger.count(jobs, action.verb)
        if self.is_measured:
            self._lane.meter.settled(jobs, action.verb)
        return lambda: state.settled(jobs)

    def gave_up(self, action: Read | SettleJobs) -> None:
        """Report that *action* raised what ends the worker."""
        state = self._lane.state
        if isinstance(action, Read):
            state.acked(action.acks)
            state.read_failed()
        else:
            state.settled(action.jobs)
