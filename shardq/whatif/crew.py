"""The workers of a replay. Each decides as a real one (`shardq.worker.state`), and what it decides is done here.

A handler is nothing but the moment at which it ends. A read that finds nothing waits in line with those of the other
workers, as readers wait at a server, until there may be something.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from shardq.client import Queue
from shardq.model import DeliveryView, Received
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.steps import Op
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.read.acks import Acks, ack_earlier
from shardq.ops.read.command import ReadReply, request_of
from shardq.ops.read.give_back import unread
from shardq.ops.read.look import look
from shardq.ops.read.waiting import LOOK_SECONDS, Outstanding
from shardq.ops.settle.command import spelled_cost
from shardq.ops.settle.settle import ack, extend, nack
from shardq.worker.outcome import Outcome
from shardq.worker.state import LEASED, LookLater, Read, SettleJobs, WorkerJob, WorkerState

T = TypeVar("T")
MIN_WAIT: Final = 0.001
"""Seconds after which it is looked again at the earliest: as exact is the server's clock."""

NEVER: Final = -1
"""The wait, in ms, of a reader for which time brings nothing."""

PART_OF_LEASE: Final = 1 / 3
"""A worker extends a lease when this part of it has passed."""

At: TypeAlias = Callable[[float, Callable[[], object]], None]
"""Calls a function at a moment of the local clock."""


class CrewLedger(Protocol):
    """A crew's view of a replay: its questions, and its reports."""

    def delivered(self, received: Received) -> None:
        """A message was delivered."""

    def returned(self, received: Received) -> None:
        """Nobody began it: it was given back at once."""

    def begins(self, received: Received) -> float:
        """Return for how many seconds the handler of a message runs that begins now."""

    def ends(self, received: Received) -> Outcome:
        """Return what becomes of a message whose handler ends now."""

    def waits(self) -> bool:
        """Whether any message may wait in the queue."""


class Crew:
    """Workers of *queue*. *at* calls what is due at a moment, *ledger* knows the jobs."""

    def __init__(self, queue: Queue, at: At, ledger: CrewLedger) -> None:
        self._queue, self._state, self._clock = queue, queue.state, queue.state.clock
        self._at, self._ledger = at, ledger
        self._line: deque[tuple[WorkerState, Read]] = deque()
        self.look_at = math.inf
        """When those in the line look again, by the local clock, if nothing stirs the queue before."""
        self._is_stirred = False

    def join(self, slots: int, read_ahead: int) -> WorkerState:
        """Return a worker that begins now."""
        worker = WorkerState(slots, read_ahead)
        worker.max_deliveries = self._state.config.max_deliveries
        worker.pace.lasts = self._state.config.visibility_timeout
        self._act(worker)
        return worker

    def leave(self, worker: WorkerState) -> None:
        """Let a worker read no more, and finish what runs."""
        worker.stop()
        for waiting in [each for each in self._line if each[0] is worker]:
            self._line.remove(waiting)
            worker.arrived(())
        self._act(worker)

    def stir(self) -> None:
        """Something was written, or set: a reader may find something now."""
        self._is_stirred = True

    def serve(self, now: float) -> None:
        """Let those in the line read *now*, if there may be something for them."""
        if self.look_at <= now or self._is_stirred:
            self.look_at = math.inf
            self._is_stirred = False
            while self._line and self._ledger.waits():
                worker, read = self._line[0]
                if not (found := self._look(read.credit, ())):
                    break
                self._line.popleft()
                self._arrived(worker, found)
                self._act(worker)

    # --- what a worker decides --------------------------------------------------------------------------------------

    def _act(self, worker: WorkerState) -> None:
        """Do what *worker* decides, until that is nothing."""
        while (action := worker.next()) is not None:
            if isinstance(action, WorkerJob):
                self._begin(worker, action)
            elif isinstance(action, Read):
                self._read(worker, action)
            elif isinstance(action, SettleJobs):
                self._settle(worker, action)
            elif isinstance(action, LookLater):
                self._at(self._clock.monotonic() + action.seconds, lambda: self._look_around(worker))

    def _look_around(self, worker: WorkerState) -> None:
        worker.look()
        self._act(worker)

    def _begin(self, worker: WorkerState, job: WorkerJob) -> None:
        job.started = now = self._clock.monotonic()
        ran = self._ledger.begins(job.delivery.received)
        self._at(now + ran, lambda: self._end(worker, job))
        if ran > PART_OF_LEASE * self._state.config.visibility_timeout:
            self._extend_later(job)

    def _end(self, worker: WorkerState, job: WorkerJob) -> None:
        job.ended = self._clock.monotonic()
        worker.ended(job, self._ledger.ends(job.delivery.received))
        self._act(worker)

    def _extend_later(self, job: WorkerJob) -> None:
        lasts = self._state.config.visibility_timeout
        self._at(self._clock.monotonic() + PART_OF_LEASE * lasts, lambda: self._extend(job, lasts))

    def _extend(self, job: WorkerJob, lasts: float) -> None:
        """Extend the lease of a job, and charge its shard key for the time until now, as a worker does."""
        if job.message != LEASED:
            return
        took = job.took(self._clock.monotonic())
        told = replace(job.delivery.received, cost=spelled_cost(took, is_told=False))
        self._run(extend(self._state, [told], lasts))
        job.charged += took
        self._extend_later(job)

    def _read(self, worker: WorkerState, action: Read) -> None:
        found = self._look(action.credit, _told(action.acks)) if action.acks or self._ledger.waits() else []
        for job in action.acks:
            job.delivery.answered = True
        worker.acked(action.acks)
        if action.acks:
            self.stir()
        if found:
            self._arrived(worker, found)
        else:
            self._line.append((worker, action))

    def _arrived(self, worker: WorkerState, found: Sequence[Received]) -> None:
        for each in found:
            self._ledger.delivered(each)
        worker.arrived([DeliveryView(each, self._queue.client.codecs, self._clock) for each in found])

    def _settle(self, worker: WorkerState, action: SettleJobs) -> None:
        state, told = self._state, _told(action.jobs)
        if action.verb == "ack":
            self._run(ack(state, told))
        elif action.verb == "give back":
            self._run(unread(state, told))
            for each in told:
                self._ledger.returned(each)
        else:
            self._run(nack(state, told, [job.outcome.delay if job.outcome else 0.0 for job in action.jobs], "failed"))
        worker.settled(action.jobs)
        self.stir()

    # --- its calls --------------------------------------------------------------------------------------------------

    def _look(self, count: int, acks: Sequence[Received]) -> list[Received]:
        """Return what a read finds, after it has made *acks*. If that is nothing, note when to look again."""
        rows: list[Received] = []
        while True:
            found = self._run(self._looked(count - len(rows), acks))
            rows += found.rows
            if not found.rows or not found.more or len(rows) == count:
                break
            acks = ()
        if not rows:
            now = self._clock.monotonic()
            self.look_at = min(self.look_at, max(_next_look(found, now), now + MIN_WAIT))
        return rows

    def _looked(self, count: int, acks: Sequence[Received]) -> Op[ReadReply]:
        """Look for messages as a read that would wait."""
        state, now = self._state, self._clock.monotonic()
        until = state.until(None)
        yield from open_queue(state, until)
        if state.view.has_upkeep:
            yield from upkeep(state, now)
        to_ack = Acks.of(acks) if acks else None
        if to_ack is not None:
            yield from ack_earlier(state, to_ack, until)
        request = request_of(state, count, None, None)
        return (yield from look(state, request, LOOK_SECONDS, until, Outstanding(), to_ack))

    def _run(self, op: Op[T]) -> T:
        return self._queue.client.run(op)


def _next_look(found: ReadReply, now: float) -> float:
    """Return when to look again after a read that found nothing, if nothing stirs the queue before.

    The server says exactly when time brings something, however late that is; or that it never does. Only where it
    counts on other readers it does not say.
    """
    return now + LOOK_SECONDS if found.wait_ms < NEVER else found.wake_at(now)


def _told(jobs: Sequence[WorkerJob]) -> list[Received]:
    """Return what Redis learns of *jobs*: they cost the time that their handlers ran, if that is charged."""
    return [
        replace(job.delivery.received, cost=spelled_cost(job.took(job.ended), is_told=False))
        if job.delivery.received.timed
        else job.delivery.received
        for job in jobs
    ]
