"""How far a worker reads ahead, and a worker's state on a clock that is put forward: what jobs cost, and who waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

import pytest

from shardq.worker import pace
from shardq.worker.outcome import ACK, GIVE_BACK
from shardq.worker.pace import Pace
from shardq.worker.slots import shares
from shardq.worker.state import BUSY, LookLater, Read, SettleJobs, WorkerJob, WorkerState
from tests.worker.test_state import FakeDelivery

SLOTS = 64
PART = SLOTS // 6
LATER = LookLater(2**-8)
"""The worker looks again after a quarter of what its handlers take."""


def behind_a_backlog(slots: int = SLOTS, most: int = 0, took: float = 0.02) -> Pace:
    """A pace after a read that brought all, and after that as many handlers have ended as there are slots."""
    made = Pace(slots, most)
    made.reads(slots)
    made.has_read(slots)
    for _ in range(slots):
        made.has_ended(took)
    return made


def test_behind_a_backlog_a_sixth_of_the_slots_is_read_ahead() -> None:
    assert behind_a_backlog().ahead == PART
    few = behind_a_backlog(slots=5)
    assert (few.ahead, few.is_behind) == (0, False), "a few slots have no sixth, and their acks wait for no read"


def test_nothing_is_read_ahead_where_a_read_brought_less_than_it_asked_for() -> None:
    found = behind_a_backlog()
    found.reads(9)
    found.has_read(8)
    for _ in range(SLOTS):
        found.has_ended(0.02)
    assert found.ahead == 0


def test_never_more_is_read_ahead_than_handlers_ended_since_the_last_read_began() -> None:
    found = behind_a_backlog()
    found.reads(9)
    found.has_read(9)
    assert found.ahead == 0
    for _ in range(3):
        found.has_ended(0.02)
    assert found.ahead == 3


def test_ahead_of_long_handlers_nothing_is_read_and_of_short_ones_what_the_program_says() -> None:
    assert behind_a_backlog(took=0.6).ahead == 0
    assert behind_a_backlog(took=0.001).ahead == 0
    assert behind_a_backlog(took=0.001, most=500).ahead == 500
    assert behind_a_backlog(took=0.02, most=500).ahead == PART
    assert Pace(SLOTS, 500).ahead == 0, "nothing is known"


def test_it_is_looked_after_a_quarter_of_a_handlers_time_and_a_twelfth_of_a_lease_at_most() -> None:
    found = behind_a_backlog(took=0.2)
    found.lasts = 30.0
    assert found.patience == pytest.approx(0.05)
    found.has_ended(60.0)
    assert found.patience == pytest.approx(0.125), "one that was long makes none of the others wait for minutes"
    found.lasts = 0.24
    assert found.patience == pytest.approx(0.02)


def test_what_waits_in_vain_again_and_again_is_read_ahead_ever_more_rarely() -> None:
    """Handlers that each take the same time begin together, and end together."""
    found = behind_a_backlog()
    for slots in (1, 2, 4, 8, 16, 32, 32):
        found.has_waited(in_vain=True)
        for _ in range(slots * SLOTS - 1):
            found.has_ended(0.02)
            assert (found.ahead, found.is_behind) == (0, True)
        found.has_ended(0.02)
        assert found.ahead == PART
    for _ in range(12):
        found.has_waited(in_vain=False)
    found.has_waited(in_vain=True)
    for _ in range(SLOTS):
        found.has_ended(0.02)
    assert found.ahead == PART


@pytest.mark.parametrize("length", [0.02, 0.05, 0.2])
def test_of_handlers_in_step_few_messages_are_given_back_unworked(length: float) -> None:
    state, waves = WorkerState(SLOTS), 300
    state.pace.lasts = 30.0
    started: list[WorkerJob] = []
    for wave in range(waves):
        now, looks = wave * length, False
        for job in started:
            job.ended = now
            state.ended(job, ACK)
        started = []
        while (action := state.next()) is not None:
            if isinstance(action, WorkerJob):
                action.started = now
                started.append(action)
            elif isinstance(action, Read):
                for job in action.acks:
                    job.delivery.answered = True
                state.acked(action.acks)
                state.arrived([FakeDelivery() for _ in range(action.credit)])  # type: ignore[misc]
            elif isinstance(action, SettleJobs):
                state.settled(action.jobs)
            else:
                looks = True
        if looks:  # a quarter of their time later none has begun
            state.look()
            state.look()
            while (later := state.next()) is not None and not isinstance(later, LookLater):
                assert isinstance(later, SettleJobs)
                state.settled(later.jobs)
    assert state.tally["ack"] == (waves - 1) * SLOTS
    assert state.tally["give back"] < 0.02 * state.tally["ack"]


# --- on a clock that is put forward -----------------------------------------------------------------------------------


class Desk:
    """A worker with handlers of *length* seconds, a half more or less; a call takes *call* seconds.

    The queue has messages of floods without end, and gives quiet ones out first, as Redis does.
    """

    def __init__(self, rng: random.Random, slots: int, length: float, call: float) -> None:
        self.rng, self.length, self.call, self.slots = rng, length, call, slots
        self.state = WorkerState(slots)
        self.state.pace.lasts = 30.0
        self.now = self.stall_until = 0.0
        self.hang_from = inf
        """Handlers that begin later do not end."""
        self.quiet: list[float] = []
        self.waits: list[tuple[float, float]] = []
        """When each quiet message was written, and how long it waited, in lengths."""
        self.calls = self.done = 0
        self.worked = 0.0
        self._written: dict[object, float] = {}
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers: Iterator[int] = count()

    def at(self, when: float, event: Callable[[], object]) -> None:
        """Something happens then."""
        heappush(self._events, (when, next(self._numbers), event))

    def run(self, seconds: float, *, quiet: float) -> None:
        """Work for so long; a quiet message comes each *quiet* seconds, on average."""
        when = 0.0
        while (when := when + self.rng.expovariate(1 / quiet)) < seconds:
            self.at(when, lambda: self.quiet.append(self.now))
        self.perform()
        while self._events and self._events[0][0] < seconds:
            self.now, _, event = heappop(self._events)
            event()
            self.perform()

    def perform(self) -> None:
        """Do all that is next."""
        while (action := self.state.next()) is not None:
            if isinstance(action, WorkerJob):
                self.begin(action)
            elif isinstance(action, LookLater):
                self.at(self.now + action.seconds, self.state.look)
            else:
                self.calls += 1
                over = max(self.now, self.stall_until) + self.call
                self.at(over, lambda action=action: self.answer(action))  # type: ignore[misc]

    def begin(self, job: WorkerJob) -> None:
        """A handler begins."""
        job.started = self.now
        if (written := self._written.pop(job.delivery, None)) is not None:
            self.waits.append((written, (self.now - written) / self.length))
        if self.now < self.hang_from:
            self.at(self.now + self.length * self.rng.uniform(0.5, 1.5), lambda: self.end(job))

    def end(self, job: WorkerJob) -> None:
        """A handler ends."""
        job.ended = self.now
        self.worked += job.ended - job.started
        self.done += 1
        self.state.ended(job, ACK)

    def answer(self, action: Read | SettleJobs) -> None:
        """A call to Redis is over."""
        if isinstance(action, SettleJobs):
            self.state.settled(action.jobs)
            return
        self.calls += bool(action.acks)
        for job in action.acks:
            job.delivery.answered = True
        found: list[Any] = []
        for written in self.quiet[: action.credit]:
            found.append(FakeDelivery(stream=1))
            self._written[found[-1]] = written
        del self.quiet[: action.credit]
        found += [FakeDelivery() for _ in range(action.credit - len(found))]
        self.state.acked(action.acks)
        self.state.arrived(found)

    def busy(self, seconds: float) -> float:
        """Which part of the slots was busy."""
        return self.worked / self.slots / seconds


def ordered(desk: Desk) -> list[float]:
    return sorted(wait for _, wait in desk.waits)


@pytest.mark.parametrize("length", [0.02, 0.2])
@pytest.mark.parametrize("slots", [16, 64])
def test_behind_a_backlog_slots_are_busy_calls_are_shared_and_a_quiet_tenant_waits_little(
    seed: int, slots: int, length: float
) -> None:
    desk = Desk(random.Random(seed), slots, length, call=length / 25)
    desk.run(400 * length, quiet=length)
    assert desk.busy(400 * length) >= 0.98
    assert desk.calls / desk.done <= (1.2 if slots == 16 else 0.3), "there were 2 a job"
    waits = ordered(desk)
    assert waits[len(waits) // 2] <= 0.3
    assert waits[len(waits) * 99 // 100] <= 0.75
    assert waits[-1] <= 1.0


@pytest.mark.parametrize("part", [6, 10**6])
def test_when_redis_stands_still_only_those_wait_long_who_write_then_with_or_without_read_ahead(
    seed: int, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """A read was under way for ten lengths, and all handlers had ended: no message lay in the worker for so long."""
    monkeypatch.setattr(pace, "READ_AHEAD_DIVISOR", part)
    desk = Desk(random.Random(seed), SLOTS, 0.02, call=0.001)
    begin, end = 2.0, 2.2

    def stall() -> None:
        desk.stall_until = end

    desk.at(begin, stall)
    desk.at(begin + 2 * desk.call, lambda: desk.quiet.append(desk.now))
    desk.run(4.0, quiet=0.01)
    long = [written for written, wait in desk.waits if wait > 1.5]
    assert long
    assert all(begin - 0.02 < written < end for written in long)
    assert max(wait for _, wait in desk.waits) > 9


def test_what_was_read_ahead_goes_back_uncounted_when_handlers_hang(seed: int) -> None:
    desk = Desk(random.Random(seed), SLOTS, 0.02, call=0.001)
    desk.hang_from = 0.4
    desk.run(0.4 + 3 * desk.length, quiet=0.01)
    assert desk.state.busy == SLOTS
    assert [job.slot for job in desk.state.held] == [BUSY] * SLOTS, "nothing else is held"
    assert 0 < desk.state.tally["give back"] <= PART
    assert desk.state.next() is None, "nothing is read ahead of handlers that hang"


# --- by hand ----------------------------------------------------------------------------------------------------------


def reads_ahead() -> tuple[WorkerState, list[WorkerJob]]:
    """A worker of twelve slots behind a backlog, all of them busy with these jobs, and two messages read ahead."""
    state = WorkerState(12)
    state.pace.lasts = 30.0
    state.next()
    answer(state, (), 12)
    first, second, *others = started(state)
    for job in (first, second):
        end(state, job)
    assert state.next() == Read(4, [first, second]), "two slots are free, and two handlers ended"
    answer(state, [first, second], 4)
    return state, [*others, *started(state)]


def answer(state: WorkerState, acks: Sequence[WorkerJob], found: int) -> None:
    for job in acks:
        job.delivery.answered = True
    state.acked(acks)
    state.arrived([FakeDelivery() for _ in range(found)])  # type: ignore[misc]


def started(state: WorkerState) -> list[WorkerJob]:
    """All that begin now; the look that is asked for next."""
    found: list[WorkerJob] = []
    while isinstance(action := state.next(), WorkerJob):
        action.started = 1.0
        found.append(action)
    assert action is None or action == LATER
    return found


def end(state: WorkerState, job: WorkerJob) -> None:
    job.ended = job.started + 2**-6
    state.ended(job, ACK)


def test_the_next_read_comes_when_what_was_read_ahead_has_begun_and_takes_the_acks_along() -> None:
    state, jobs = reads_ahead()
    end(state, jobs[0])
    assert isinstance(state.next(), WorkerJob)
    assert state.next() is None
    assert not state.more
    end(state, jobs[1])
    assert isinstance(state.next(), WorkerJob)
    assert state.next() == Read(2, jobs[:2])


def test_acks_of_handlers_that_end_while_a_read_is_under_way_wait_for_the_next_one_but_not_for_long() -> None:
    state, jobs = reads_ahead()
    for job in jobs[:2]:
        end(state, job)
        state.next()
    assert isinstance(state.next(), Read)
    state.look()
    end(state, jobs[2])
    assert [state.next(), state.next()] == [LATER, None]
    state.look()
    assert state.next() == SettleJobs("ack", [jobs[2]]), "the read finds nothing, as it seems"


def test_what_was_read_ahead_stays_while_something_begins_and_else_goes_back() -> None:
    state, jobs = reads_ahead()
    end(state, jobs[0])
    assert isinstance(state.next(), WorkerJob)
    state.look()
    assert [state.next(), state.next()] == [SettleJobs("ack", [jobs[0]]), LATER]
    state.settled([jobs[0]])
    state.look()
    given = state.next()
    assert isinstance(given, SettleJobs)
    assert [job.outcome for job in given.jobs] == [GIVE_BACK]


def test_queues_that_share_their_slots_read_nothing_ahead() -> None:
    share, _ = shares(24, [1, 1])
    jobs: list[WorkerJob] = []
    state = WorkerState(24, 0, share)
    while isinstance(action := state.next(), (WorkerJob, Read)):
        if isinstance(action, Read):
            answer(state, (), action.credit)
        else:
            action.started = 1.0
            jobs.append(action)
    end(state, jobs[0])
    assert state.next() == Read(1, [jobs[0]])
    answer(state, [jobs[0]], 1)
    assert [type(state.next()), state.next()] == [WorkerJob, None]
