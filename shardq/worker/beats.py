"""The beats of a worker: its report in each of its queues, about every 5 s.

A beat rides: it goes out with a read, in the same round trip; while all handlers run on and nothing is read, with the
look for cancels (`keeper`). With it go those of the worker's other queues that were silent for longer, since a queue
with nothing to read now makes no trips. Two beats make a trip of their own: the last one, when the worker ends, and in
a cluster, where queues lie on different nodes, that of a queue that has made no trip for some seconds. A beat that
fails is logged, once a minute at most, and nothing else comes of it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from shardq import __version__
from shardq.client import Queue
from shardq.client.base import host_name
from shardq.errors import ShardqError
from shardq.ops.inspect.beats import beat_call, beat_reply, numbers_calls
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op, Refused, Unanswered
from shardq.outlook.together import statistics
from shardq.platforms import memory_limit, resident_memory
from shardq.protocol.beats import MINUTE, Beat, TaskCount, spell_numbers, spell_row, spell_work, worker_id
from shardq.protocol.replies import stats
from shardq.worker.ledger import Ledger
from shardq.worker.state import BUSY, WorkerState

log = logging.getLogger("shardq")
PERIOD: Final = 5.0
"""Seconds between two beats."""
PATIENCE: Final = 1.0
"""Seconds for which a beat that is due waits for a read, before it goes with something else."""
UNCARRIED: Final = 2.0
"""Seconds after which a beat goes with those of the worker's other queues, or in a cluster by itself."""
LAST_BEAT_SECONDS: Final = 1.0
"""Seconds that the last beat may take."""
LOG_INTERVAL: Final = 60.0
"""Seconds for which another failure is not logged."""

_numbers: set[int] = set()
_numbers_lock = threading.Lock()


class BeatHost(Protocol):
    """A lane, as its pulse sees it."""

    state: WorkerState
    lock: threading.Lock

    def children(self) -> Sequence[int]:
        """The ids of its child processes."""


class BeatPart:
    """One queue's beat: its `calls`, and the `work` that is reported with them."""

    __slots__ = ("calls", "pulse", "sent", "work")

    def __init__(self, pulse: Pulse, calls: tuple[Call, ...], work: Mapping[str, TaskCount], sent: float) -> None:
        self.pulse, self.calls, self.work, self.sent = pulse, calls, work, sent


class Ride:
    """The beats of one or more queues, which ride together. Those of the first one's queue come first."""

    def __init__(self, parts: Sequence[BeatPart]) -> None:
        self._parts = parts
        self.calls = tuple([call for part in parts for call in part.calls])
        self.cancels: object = None
        """The first queue's number of cancels, as HGET returns it."""
        self.is_answered = False

    def answered(self, outcomes: Sequence[Any]) -> None:
        """Take what became of each call."""
        at = 0
        for part in self._parts:
            part.pulse.answered(part, outcomes[at : at + len(part.calls)])
            at += len(part.calls)
        if not isinstance(outcomes[0], Exception) and (first := beat_reply(outcomes[0])):
            self.is_answered, self.cancels = True, first.cancels

    def left(self) -> None:
        """Take note that nobody took it along: all of it was not told."""
        for part in self._parts:
            part.pulse.left(part)

    def alone(self, until: float) -> Op[None]:
        """Make the calls by themselves."""
        self.answered((yield Batch(self.calls, until)))


class Pulse:
    """The pulse of one queue of a worker: its beats, and what they are made of."""

    def __init__(self, beats: Beats, lane: BeatHost, jobs: Queue, slots: int) -> None:
        self._beats, self._lane, self._slots = beats, lane, slots
        self.state, self.client = jobs.state, jobs.client
        self._clock = jobs.state.clock
        self.ledger = Ledger()
        self.due_at = -1.0
        """Local time from which a beat may ride."""
        self.is_known = False
        """Whether a beat was answered."""
        self._began = self._clock.monotonic()
        self._ran_at, self._ran = self._began, 0.0
        self._worked_in = -1  # the minute in which it last told what it did
        self._asks, self._numbers = False, ""
        self._lock = threading.Lock()

    def ride(self, now: float, late: float = 0.0) -> Ride | None:
        """Return the beat if it has been due for *late* seconds, with those of other queues that were; else None."""
        if now < self.due_at + late:
            return None
        own = self.part(now, 0.0)
        if own is None:  # another thread has just taken it
            return None
        return Ride([own, *[part for pulse in self._beats.others(self) if (part := pulse.part(now, UNCARRIED))]])

    def part(self, now: float, late: float, *, is_end: bool = False) -> BeatPart | None:
        """Return what the beat tells, if it has been due for *late* seconds."""
        with self._lock:
            if not is_end and now < self.due_at + late:
                return None
            self.due_at = now + PERIOD
            beat = self._beat(now, is_end)
            minute = self._minute(now)
            first = minute != self._worked_in
            self._worked_in = minute
            work = self.ledger.work() if first or is_end else {}
            # Work before the first beat of a minute belongs to the minute before.
            text = spell_work(minute - (not is_end), work)
            row, numbers = spell_row(beat), self._numbers
            calls = [beat_call(self.state, self._beats.id, row, text, numbers, first=first and not is_end)]
            if self._asks and not is_end:
                calls += numbers_calls(self.state)
            self._asks, self._numbers = False, ""
        return BeatPart(self, tuple(calls), work, now)

    def answered(self, part: BeatPart, outcomes: Sequence[Any]) -> None:
        """Take what became of the calls of *part*."""
        try:
            self._answered(part, outcomes)
        except Exception as error:  # noqa: BLE001 (a beat makes nothing fail that it rides with)
            self._beats.failed(self.state, error)

    def left(self, part: BeatPart) -> None:
        """Tell with the next trip what *part* was to tell."""
        with self._lock:
            self.ledger.untold(part.work)
            self.due_at, self._worked_in = part.sent, -1

    def _answered(self, part: BeatPart, outcomes: Sequence[Any]) -> None:
        told = outcomes[0]
        if isinstance(told, Exception):
            if isinstance(told, Refused) or not getattr(told, "sent", True):
                with self._lock:
                    self.ledger.untold(part.work)
            if isinstance(told, Refused):
                self._beats.failed(self.state, told)
            return
        found = beat_reply(told)
        if found is None:  # there is no such queue
            return
        self.is_known = True
        self.state.note_server_time(found.now, part.sent, part.sent)
        with self._lock:
            if found.is_asked:
                self._asks = True
            numbers = outcomes[1:]
            if numbers and not any(isinstance(each, Exception) for each in numbers):
                of_parts = [stats(self.state.keys.name, each) for each in numbers]
                self._numbers = spell_numbers(statistics(of_parts))
            if self._asks or self._numbers:
                self.due_at = part.sent  # with the next trip

    def _server_time(self, local: float) -> float:
        """Return what the server's clock shows at a local time, in seconds, as far as that is known."""
        known = self.state.server_time
        if known is None:
            return self._clock.wall() + local - self._clock.monotonic()
        return known.ms / 1000 + local - known.at

    def _minute(self, now: float) -> int:
        return int(self._server_time(now) // MINUTE)

    def _beat(self, now: float, is_end: bool) -> Beat:
        told = self.ledger.told(now)
        with self._lane.lock:
            held = [job for job in self._lane.state.held if job.started]
        running = [job for job in held if job.slot == BUSY and not job.ended]
        # Those that ended and are not settled are not counted yet.
        ran = self.ledger.ran + sum([(job.ended or now) - job.started for job in held])
        passed = now - self._ran_at
        busy = max(0.0, min(float(self._slots), (ran - self._ran) / passed)) if passed > 0 else float(len(running))
        self._ran_at, self._ran = now, ran
        longest = min(running, key=lambda job: job.started, default=None)
        return Beat(
            is_end=is_end, slots=self._slots, busy=busy, started=self._server_time(self._began), pid=os.getpid(),
            memory=sum(map(resident_memory, [None, *self._lane.children()])), memory_limit=memory_limit(),
            version=__version__, host=host_name(),
            longest_since=self._server_time(longest.started) if longest else None,
            longest_message=longest.delivery.message_id if longest else "",
            longest_task=longest.delivery.task if longest else "",
            tasks=told.tasks, tenants=told.tenants, others=told.others,
        )  # fmt: skip


class Beats:
    """The beats of a worker, which has a pulse for each of its queues."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.pulses: list[Pulse] = []
        self._number = 0
        self._logged_at = -LOG_INTERVAL
        self.id = ""
        """The worker's id, while it runs."""

    def pulse(self, lane: BeatHost, jobs: Queue, slots: int) -> Pulse:
        """Return the pulse of one more queue."""
        found = Pulse(self, lane, jobs, slots)
        self.pulses.append(found)
        return found

    def others(self, first: Pulse) -> Sequence[Pulse]:
        """Return whose beats may ride with those of *first*."""
        # In a cluster other queues are on other nodes, and one that is away would hold up the trip: see `keeper`.
        return [] if first.state.cluster else [each for each in self.pulses if each is not first]

    def start(self) -> None:
        """Take an id: the same as long as the worker runs, and another one than those of others of this process."""
        with _numbers_lock:
            self._number = next(number for number in range(1, len(_numbers) + 2) if number not in _numbers)
            _numbers.add(self._number)
        self.id = worker_id(self._name, host_name(), os.getpid(), self._number)

    def end(self) -> None:
        """Tell that the worker ends, if Redis knows of it."""
        if not self.id:
            return
        try:
            known = [pulse for pulse in self.pulses if pulse.is_known]
            if known:
                self._tell_end(known)
        except (ShardqError, Refused, Unanswered) as error:
            log.debug("the worker's end was not told: %s", error)
        finally:
            with _numbers_lock:
                _numbers.discard(self._number)

    def _tell_end(self, known: Sequence[Pulse]) -> None:
        now = known[0].state.clock.monotonic()
        parts = [part for pulse in known if (part := pulse.part(now, 0.0, is_end=True))]
        known[0].client.run(Ride(parts).alone(now + LAST_BEAT_SECONDS))

    def failed(self, state: QueueState, error: Exception) -> None:
        """Log that a beat failed, unless that was logged lately."""
        now = state.clock.monotonic()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            log.warning("queue %r: the beat of this worker was not stored: %s", state.keys.name, error)
