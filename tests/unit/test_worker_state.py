"""The worker's state machine against random events, and a few by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from shardq.worker.outcome import ACK, GIVE_BACK, Outcome
from shardq.worker.state import (
    AWAY,
    BATCH,
    BUSY,
    DRAINING,
    FREE,
    GONE,
    LIFE,
    MESSAGE,
    RETURNING,
    RUNNING,
    SLOT,
    STOPPED,
    WAITING,
    Job,
    Read,
    Settle,
    WorkerState,
)

OUTCOMES = [ACK, Outcome("nack", 2.0, "ValueError: no"), Outcome("reject", 0.0, "never")]


_numbers: Iterator[int] = count()


@dataclass(eq=False)
class FakeDelivery:
    """What the machine looks at."""

    count: int = 1
    remaining: float = 10.0
    number: int = field(default_factory=lambda: next(_numbers))


def deliveries(how_many: int, **fields: float) -> list[Any]:
    return [FakeDelivery(**fields) for _ in range(how_many)]  # type: ignore[arg-type]


def _fake(job: Job) -> FakeDelivery:
    return job.delivery  # type: ignore[return-value]


def _number(job: Job) -> int:
    return _fake(job).number


class Simulation:
    """Simulates a runner: it performs the actions at random times, and checks the rules with its own records."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.concurrency, ahead = rng.choice([1, 2, 5, 40]), rng.choice([0, 0, 1, 7])
        self.window = self.concurrency + ahead
        self.state = WorkerState(self.concurrency, ahead)
        self.state.max_deliveries = 4
        self.running: list[Job] = []
        self.reading: int | None = None
        self.settling: Settle | None = None
        self.lost: set[Job] = set()
        self.arrived: list[Job] = []
        self.told: Counter[Job] = Counter()
        self.settled: Counter[Job] = Counter()
        self.stopping = False

    def perform(self) -> None:
        """Take all actions there are; check what each may be."""
        while (action := self.state.next()) is not None:
            assert self.state.life != STOPPED
            if isinstance(action, Job):
                assert action not in self.lost
                assert action not in self.running
                if self.stopping:
                    assert action.delivery.count >= 4  # one more delivery would kill it
                self.running.append(action)
                assert len(self.running) <= self.concurrency
            elif isinstance(action, Read):
                assert self.reading is None
                assert not self.stopping
                assert 0 < action.credit <= self.window - len(self.running)
                self.reading = action.credit
            else:
                self.send(action)

    def send(self, action: Settle) -> None:
        assert self.settling is None
        assert 0 < len(action.jobs) <= BATCH
        for job in action.jobs:
            assert job not in self.lost, "settled after its lease was lost"
            assert job.outcome is not None
            assert job.outcome.verb == action.verb
            assert self.settled[job] == 0, "settled twice"
        self.settling = action

    def read_returns(self) -> None:
        if self.reading is not None:
            found = deliveries(self.rng.randint(0, self.reading), count=self.rng.randint(1, 4))
            before = set(self.state.held)
            self.reading = None
            self.state.arrived(found)
            self.arrived += self.state.held - before

    def read_fails(self) -> None:
        if self.reading is not None:
            self.reading = None
            self.state.redis_fails()
            self.state.read_failed()

    def handler_ends(self) -> None:
        if self.running:
            job = self.running.pop(self.rng.randrange(len(self.running)))
            self.state.ended(job, self.rng.choice(OUTCOMES))

    def settle_returns(self) -> None:
        if self.settling:
            self.settled.update(self.settling.jobs)
            self.state.settled(self.settling.jobs)
            self.settling = None

    def settle_fails(self) -> None:
        if self.settling:
            for job in self.settling.jobs:
                _fake(job).remaining = self.rng.choice([10.0, 10.0, 0.0])
            late = [job for job in self.settling.jobs if job.delivery.remaining <= 0]
            self.lost.update(late)
            self.state.unsettled(self.settling.jobs)
            self.settling = None

    def lease_is_lost(self) -> None:
        if self.state.held:
            job = self.rng.choice(sorted(self.state.held, key=_number))
            was_sent = self.settling is not None and job in self.settling.jobs
            if self.state.lost(job):
                assert job in self.running
                self.told[job] += 1
            if not was_sent and self.settled[job] == 0:
                self.lost.add(job)

    def time_is_up(self) -> None:
        if self.running:
            job = self.rng.choice(self.running)
            if self.state.decide(job, OUTCOMES[1]):
                self.told[job] += 1

    def stop(self) -> None:
        assert self.state.stop() is not self.stopping
        self.stopping = True

    def grace_ends(self) -> None:
        if self.state.life == DRAINING:
            self.told.update(self.state.grace_over())

    def check(self) -> None:
        state = self.state
        assert state.busy == len(self.running) <= self.concurrency
        held = sum(job.slot == WAITING for job in state.held)
        assert state.busy + held <= self.window
        assert state.credit >= 0
        assert all(count == 1 for count in self.settled.values())
        assert all(count == 1 for count in self.told.values())
        assert {job for job in self.arrived if job.message != GONE or job.slot != FREE} == state.held

    def step(self) -> None:
        events = [
            self.read_returns, self.read_returns, self.read_fails, self.handler_ends, self.handler_ends,
            self.handler_ends, self.settle_returns, self.settle_returns, self.settle_fails, self.lease_is_lost,
            self.time_is_up, self.state.redis_answers,
        ]  # fmt: skip
        self.rng.choice(events)()
        self.perform()
        self.check()

    def drain(self) -> None:
        """After stop, and if handlers hang the end of the grace, everything ends."""
        self.stop()
        self.perform()
        hang = self.rng.random() < 0.3
        for _ in range(100_000):
            if self.state.life == STOPPED:
                break
            if hang and self.rng.random() < 0.1:
                self.grace_ends()
            events = [self.read_returns, self.settle_returns, self.settle_fails]
            self.rng.choice(events if hang else [*events, self.handler_ends])()
            self.perform()
            self.check()
        assert self.state.life == STOPPED
        assert self.settling is None
        assert self.reading is None
        assert hang or not self.running


@pytest.mark.parametrize("part", range(8))
def test_random_events_never_break_the_rules_and_all_drains(seed: int, part: int) -> None:
    for number in range(40):
        simulation = Simulation(random.Random(f"{seed}.{part}.{number}"))
        simulation.perform()
        for _ in range(simulation.rng.choice([0, 5, 300])):
            simulation.step()
        simulation.drain()
        for job in simulation.arrived:
            assert job.message == GONE
            assert (simulation.settled[job] == 1) != (job in simulation.lost), "settled once, unless its lease was lost"
            assert job in simulation.running or job not in simulation.state.held


def test_a_read_asks_for_what_can_start_and_only_one_is_under_way() -> None:
    state = WorkerState(3, read_ahead=2)
    assert state.next() == Read(5)
    assert state.next() is None
    state.arrived(deliveries(4))
    jobs = [state.next() for _ in range(3)]
    assert all(isinstance(job, Job) for job in jobs)
    assert state.next() == Read(1)
    assert state.next() is None
    assert not state.more


def test_settling_gathers_while_a_call_is_under_way() -> None:
    state = WorkerState(3)
    state.next()
    state.arrived(deliveries(3))
    first, second, third = (state.next() for _ in range(3))
    assert isinstance(first, Job)
    assert isinstance(second, Job)
    assert isinstance(third, Job)
    state.ended(first, ACK)
    assert state.next() == Settle("ack", [first])
    assert state.next() == Read(1)
    state.ended(second, ACK)
    state.ended(third, OUTCOMES[1])
    assert state.next() is None
    state.settled([first])
    assert state.next() == Settle("ack", [second])
    state.settled([second])
    assert state.next() == Settle("nack", [third])


def test_a_lost_lease_frees_its_slot_only_when_the_handler_ends() -> None:
    state = WorkerState(1)
    state.next()
    state.arrived(deliveries(1))
    job = state.next()
    assert isinstance(job, Job)
    assert state.lost(job)
    assert not state.lost(job)
    assert state.stuck
    assert state.next() is None
    state.ended(job, ACK)
    assert (state.held, state.next()) == (set(), Read(1))


def test_what_would_die_of_one_more_delivery_is_finished_while_draining() -> None:
    state = WorkerState(2)
    state.max_deliveries = 4
    state.next()
    state.stop()
    state.arrived([*deliveries(1, count=4), *deliveries(1, count=3)])
    last = state.next()
    assert isinstance(last, Job)
    assert last.delivery.count == 4
    given_back = state.next()
    assert isinstance(given_back, Settle)
    assert [(job.delivery.count, job.outcome) for job in given_back.jobs] == [(3, GIVE_BACK)]


def test_away_changes_only_with_news() -> None:
    state = WorkerState(1)
    assert [state.redis_answers(), state.redis_fails(), state.redis_fails()] == [False, True, False]
    assert state.life == AWAY
    assert state.redis_answers()
    assert state.life == RUNNING


def test_unsettled_messages_hold_up_reading() -> None:
    state = WorkerState(BATCH)
    for _ in range(20):
        action = state.next()
        if not isinstance(action, Read):
            break
        state.arrived(deliveries(action.credit))
        while isinstance(job := state.next(), Job):
            state.ended(job, ACK)
        if isinstance(job, Read):
            state.read_failed()
    assert not isinstance(state.next(), Read)
    assert len(state.held) <= 4 * BATCH


def test_the_tables_name_only_states_that_they_have() -> None:
    for table in (LIFE, MESSAGE, SLOT):
        assert {to for events in table.values() for to in events.values()} <= set(table)
    assert LIFE[RETURNING]["nothing held"] == STOPPED
    assert SLOT[WAITING]["start"] == BUSY
