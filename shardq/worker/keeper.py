"""The thread that extends leases, and gives the worker's sign of life.

When each lease is due to be extended is in the timing wheel of the worker's client. Leases that are due within one
batch window share an entry of the wheel, and are extended by one call. So what happens to one message costs O(1),
however many the worker holds, and most handlers end before anything is due. The extensions are sent by a thread with
connections of its own: neither a handler that blocks the event loop nor handlers that use up the client's connections
can stop it, and a server that does not answer holds up neither the wheel nor anything else in it. The lease itself
reports that it is lost (`shardq.client.leases`).

The sign of life says that the process does not hang. It does not say that it has work or that Redis answers: a failed
probe restarts the process, which helps if it hangs, but not if Redis is away.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import ceil
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from shardq.client import Client
from shardq.client.leases import ENDED, LeasedDelivery
from shardq.errors import BackendError, ClosedError
from shardq.files import touch
from shardq.model import Received
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.settle import settle
from shardq.ops.settle.command import spelled_cost
from shardq.partitions.parts import Parts, known_beside, listed, numbers_of
from shardq.timing import Entry
from shardq.worker import guard
from shardq.worker.beats import PATIENCE, UNCARRIED, Pulse
from shardq.worker.plan import WorkerPlan
from shardq.worker.state import LEASED, WorkerJob

log = logging.getLogger("shardq")
T = TypeVar("T")
PULSE = 1.0
"""Seconds between two signs of life."""
EXTEND_TIMEOUT = 2.0
"""Seconds that one extension may take, at most."""
LOOK_INTERVAL = 0.5
"""Seconds between two looks for cancels, while the worker holds messages."""
EARLY_SECONDS = 0.001
"""Seconds by which the wheel and the arithmetic of floats may be early."""


class KeeperEvents(Protocol):
    """The functions that the keeper calls, in its own or the timer's thread or loop, when something happened."""

    def lost(self, job: WorkerJob) -> None:
        """The lease of *job* is over. May be called more than once."""
        ...

    def is_responsive(self) -> bool:
        """Whether the worker still gets on, so that its sign of life may be given."""
        ...


class SettleBatch(Entry):
    """Jobs whose leases are due to be extended within one batch window, which ends at local time `at`."""

    __slots__ = ("_keeper", "at", "jobs")

    def __init__(self, keeper: Keeper, at: float) -> None:
        super().__init__()
        self._keeper = keeper
        self.at = at
        self.jobs: set[WorkerJob] = set()

    def fire(self) -> None:
        """Hand the jobs to the keeper's thread."""
        self._keeper._due(self)


class Keeper:
    """Extends the leases of the jobs that it was given, until `close`."""

    def __init__(
        self,
        client: Client,
        queue_state: QueueState,
        plan: WorkerPlan,
        events: KeeperEvents,
        pulse: Pulse | None = None,
    ) -> None:
        self._worker_client, self._queue, self._plan, self._events = client, queue_state, plan, events
        self._pulse = pulse
        self._clock = queue_state.clock
        self._client: Client | None = None
        self._batches: dict[float, SettleBatch] = {}
        self._lock = threading.Lock()  # guards the batches
        self._owed: queue.SimpleQueue[Sequence[WorkerJob] | None] = queue.SimpleQueue()
        self._closed = False
        self._cancels: object = None  # what Redis answers before the first cancel
        self._looked_at = float("-inf")
        self._rests = False
        self._shown = float("-inf")
        self._thread = threading.Thread(target=self._keep, name="shardq-lease-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, and wait for it at most as long as one extension may take."""
        with self._lock:
            self._closed = True
            for batch in self._batches.values():
                batch.cancel()
        self._owed.put(None)
        if self._thread.ident is not None:
            self._thread.join(EXTEND_TIMEOUT)

    # --- from the worker and the leases -----------------------------------------------------------------------------

    def keep(self, jobs: Iterable[WorkerJob]) -> None:
        """Extend the leases of *jobs* from now on, as long as their messages are leased."""
        kept = [job for job in jobs if job.message == LEASED]
        for job in kept:
            job.delivery._lease.holder = (self, job)  # type: ignore[attr-defined]  # no call for each job
        self._add(kept)
        if kept and self._rests:
            self._owed.put(())

    def on_lease_lost(self, job: WorkerJob) -> None:
        """The lease of *job* calls this, when it is lost. Its handler's decision, if there was one, is still tried."""
        if job.message == LEASED and not self._closed:
            self._events.lost(job)

    def on_lease_shortened(self, job: WorkerJob) -> None:
        """The handler of *job* made its lease shorter, so the next extension is due earlier."""
        job.batch.discard(job)
        self._add([job])

    # --- the batches, which are in the wheel ------------------------------------------------------------------------

    @property
    def _visibility(self) -> float:
        return self._plan.visibility_timeout or self._queue.config.visibility_timeout

    def _add(self, jobs: Iterable[WorkerJob]) -> None:
        """Have the leases of *jobs* extended when a third of their time has passed, at the end of that window."""
        visibility = self._visibility
        early, window = visibility * 2 / 3, _window(visibility)
        latest: float | None = None
        with self._lock:
            for job in jobs:
                deadline = job.delivery.received.deadline
                if deadline != latest:  # those of one read have one deadline
                    latest, together = deadline, self._together(ceil((deadline - early) / window) * window)
                job.batch = together
                together.add(job)

    def _retry(self, jobs: Iterable[WorkerJob]) -> None:
        """Have the leases of *jobs* extended at the end of a window, in half a window at least."""
        window = _window(self._visibility)
        with self._lock:
            together = self._together((round(self._clock.monotonic() / window) + 1) * window)
            for job in jobs:
                job.batch = together
                together.add(job)

    def _together(self, at: float) -> set[WorkerJob]:
        """Return the jobs whose leases are extended at local time *at*. The caller has the lock."""
        batch = self._batches.get(at)
        if batch is None:
            batch = SettleBatch(self, at)
            if not self._closed:
                self._batches[at] = batch
                with suppress(ClosedError):  # then the worker's next call raises it
                    self._worker_client.timer.insert_at(batch, at)
        return batch.jobs

    def _due(self, batch: SettleBatch) -> None:
        with self._lock:  # nobody can add to it afterwards
            self._batches.pop(batch.at, None)
        self._owed.put(list(batch.jobs))

    # --- the thread -------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        self._show_alive()
        try:
            while not self._closed:
                try:
                    self._round()
                except Exception:  # without this thread every lease would be lost
                    log.exception("keeping the leases of queue %r failed", self._queue.keys.name)
        finally:
            if self._client:
                self._client.close()

    def _round(self) -> None:
        """Wait until something is owed, or it is time for a sign of life or a look for cancels, and do what it is."""
        jobs: Sequence[WorkerJob] | None = ()
        with suppress(queue.Empty):
            self._rests = not self._batches
            jobs = self._owed.get(timeout=self._pause())
        self._rests = False
        try:
            self._extend_due(jobs or ())
            self._look_for_cancels()
            self._beat_alone()
        except Exception:
            self._retry(jobs or ())
            raise
        finally:
            self._show_alive()

    def _pause(self) -> float | None:
        if self._batches:
            return LOOK_INTERVAL
        return PULSE if self._plan.alive or self._beats_alone else None

    def _look_for_cancels(self) -> None:
        """If a message of the queue was cancelled since the last look, ask of all leases whether they are lost.

        The queue counts its cancels, so a look costs one HGET, however many messages the worker holds: or a beat, which
        tells it, too, if that is due and no read has carried it. No lease is extended, since a handler may have
        given its own another end.
        """
        now = self._clock.monotonic()
        if not self._batches or now - self._looked_at < LOOK_INTERVAL * 0.9:
            return
        self._looked_at = now
        with self._lock:
            held = [job for batch in self._batches.values() for job in batch.jobs if job.message == LEASED]
        if not held:
            return
        try:
            cancels = self._count_cancels(now, held)
            if cancels == self._cancels:
                return
            received = [job.delivery.received for job in held]
            results = self._extended(held, received, None)
        except (BackendError, ClosedError):
            return  # it is looked for again
        if not any(isinstance(each, BackendError) for each in results):
            self._cancels = cancels
        for job, result in zip(held, results, strict=True):
            if result in settle.LOST_RESULTS:
                self._lose(job, result)

    def _count_cancels(self, now: float, held: Sequence[WorkerJob]) -> object:
        """Return how many messages of the queue were cancelled so far; these jobs of it are *held*."""
        rides = self._pulse is not None and self._queue.parts is None
        ride = self._pulse.ride(now, PATIENCE) if rides and self._pulse is not None else None
        if ride is not None:
            self._run(lambda _: ride.alone(now + self._timeout))
            if ride.is_answered:
                return ride.cancels
        if self._queue.parts is None:
            return self._run(lambda state: ask(state, "HGET", state.keys.meta, "cancelled"))
        numbers = sorted({*numbers_of([job.delivery for job in held])})
        counts = self._run(
            lambda head: self._parts_of(head).in_each(
                numbers, lambda state, _: listed(_answer(ask(state, "HGET", state.keys.meta, "cancelled")))
            )
        )
        # Nothing is known of a partition where nothing was cancelled, or that does not answer.
        seen = self._cancels if isinstance(self._cancels, dict) else {}
        told = {at: each for at, each in zip(numbers, counts, strict=True) if each and not isinstance(each, Exception)}
        return {**seen, **told} or None

    @property
    def _beats_alone(self) -> bool:
        return self._pulse is not None and (self._queue.cluster or self._queue.parts is not None)

    def _beat_alone(self) -> None:
        """Send the beat of a queue that makes no trips, in a cluster: there it cannot piggyback on another queue's.

        Without it a queue whose worker has its slots full of other queues' jobs would seem to have no worker.
        """
        if not self._beats_alone or self._pulse is None:
            return
        now = self._clock.monotonic()
        ride = self._pulse.ride(now, UNCARRIED if self._queue.parts is None else 0.0)
        if ride is not None:
            with suppress(BackendError, ClosedError):  # its node is away: so is anybody who would look
                self._run(lambda _: ride.alone(now + self._timeout))

    def _show_alive(self) -> None:
        alive, now = self._plan.alive, self._clock.monotonic()
        if alive and now - self._shown >= PULSE * 0.9 and self._events.is_responsive():
            self._shown = now
            guard.tell("sign of life", *([alive] if callable(alive) else [touch, alive]))

    def _extend_due(self, jobs: Sequence[WorkerJob]) -> None:
        """Extend the leases of *jobs*, unless they are over, or the handlers have extended them."""
        visibility, now = self._visibility, self._clock.monotonic()
        due: list[WorkerJob] = []
        later: list[WorkerJob] = []
        for job in jobs:
            left = job.delivery.received.deadline - now
            if job.message != LEASED:
                continue
            if left <= 0:
                self._events.lost(job)
            else:
                (due if left <= visibility * 2 / 3 + EARLY_SECONDS else later).append(job)
        self._add(later)
        if due:
            self._extend(due, visibility)

    def _lose(self, job: WorkerJob, result: settle.Settled) -> None:
        """Note that Redis said that the lease of *job* is lost, and why."""
        _delivery(job).cancelled = result is settle.Settled.CANCELLED
        _delivery(job)._lease.lose()
        self._events.lost(job)

    def _extend(self, jobs: Sequence[WorkerJob], visibility: float) -> None:
        """Extend the leases of *jobs*. If Redis does not answer it is tried again later."""
        sent = self._clock.monotonic()
        held = [job.delivery.received for job in jobs]
        costs = [job.took(sent) if _delivery(job).cost is None else None for job in jobs]
        told = [
            each if cost is None else replace(each, cost=spelled_cost(cost, is_told=False))
            for each, cost in zip(held, costs, strict=True)
        ]
        try:
            results = self._extended(jobs, told, visibility)
        except (BackendError, ClosedError) as error:  # it is tried again, as long as the lease lasts
            log.debug("leases of queue %r were not extended: %s", self._queue.keys.name, error)
            self._retry(jobs)
            return
        unanswered = {job for job, result in zip(jobs, results, strict=True) if isinstance(result, BackendError)}
        if unanswered:
            log.debug("leases of queue %r were not extended: a partition did not answer", self._queue.keys.name)
            self._retry(unanswered)
        for job, before, cost, result in zip(jobs, held, costs, results, strict=True):
            if job in unanswered:
                continue
            if cost is not None and result is settle.Settled.OK:
                job.charged += cost
            if result in settle.LOST_RESULTS:
                self._lose(job, result)
            elif job.delivery.received is before:  # else the handler itself has extended it meanwhile
                _delivery(job)._extended(sent, visibility)
        self._add([job for job in jobs if job.message == LEASED and job not in unanswered])

    def _extended(
        self, jobs: Sequence[WorkerJob], received: Sequence[Received], duration: float | None
    ) -> Sequence[settle.Settled | BackendError]:
        """Extend the leases of *jobs*, as they were *received*.

        Those of a partition that does not answer have its error. So the leases in the others are known to continue.
        """
        if self._queue.parts is None:
            return self._run(lambda state: settle.extend(state, received, duration, self._timeout))
        numbers = numbers_of([job.delivery for job in jobs])

        def each(state: QueueState, every: Sequence[int]) -> Op[Sequence[settle.Settled | BackendError]]:
            op = settle.extend(state, [received[at] for at in every], duration, self._timeout)
            found = yield from _answer(op)
            return [found] * len(every) if isinstance(found, BackendError) else found

        return self._run(lambda head: self._parts_of(head).in_each(numbers, each))

    def _run(self, op: Callable[[QueueState], Op[T]]) -> T:
        """Run an operation by a client of the keeper's own, which is made when the queue's settings are known."""
        if self._client is None:
            self._client = Client.beside(self._worker_client, timeout=self._timeout)
        return self._client.run(op(self._client.state_of(self._queue.keys.name, {})))

    def _parts_of(self, head: QueueState) -> Parts:
        """Return the partitions, as the keeper's own client has them."""
        client = cast("Client", self._client)
        return known_beside(head, self._queue.parts, client.state_of_part, client.codecs)

    @property
    def _timeout(self) -> float:
        return min(EXTEND_TIMEOUT, max(0.1, self._visibility / 6))


def _window(visibility: float) -> float:
    """Return the seconds within which extensions share a call: far shorter than a lease lasts."""
    return min(PULSE, visibility / 6)


def _answer(op: Op[T]) -> Op[T | BackendError]:
    """Return what *op* returns, or the error of a server that does not answer."""
    try:
        return (yield from op)
    except BackendError as error:
        return error


def _delivery(job: WorkerJob) -> LeasedDelivery:
    return cast("LeasedDelivery", job.delivery)


def seen_lost(job: WorkerJob) -> bool:
    """Return whether the lease of *job* is lost, and the handler may have seen it. Then nothing must be acked."""
    return job.delivery._lease.state is ENDED  # type: ignore[attr-defined]  # a look makes it so


def all_seen_lost(jobs: Sequence[WorkerJob]) -> list[WorkerJob]:
    """Return those of *jobs* whose lease is lost, and whose handler may have seen it."""
    return [job for job in jobs if job.delivery._lease.state is ENDED]  # type: ignore[attr-defined]
