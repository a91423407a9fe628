"""The worker's state machine against random events, and a few by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.worker.outcome import ACK, GIVE_BACK, Outcome
from shardq.worker.pace import READ_AHEAD_DIVISOR
from shardq.worker.slots import QueueSlots
from shardq.worker.state import (
    AWAY,
    BUSY,
    DRAINING,
    FREE,
    GONE,
    LEASED,
    LIFE,
    MAX_PIGGYBACKED,
    MAX_SETTLED_A_CALL,
    MESSAGE,
    RETURNING,
    RUNNING,
    SLOT,
    STOPPED,
    WAITING,
    LookLater,
    Read,
    SettleJobs,
    WorkerJob,
    WorkerState,
)

OUTCOMES = [ACK, Outcome("nack", 2.0, "ValueError: no"), Outcome("reject", 0.0, "never")]


_numbers: Iterator[int] = count()


@dataclass(eq=False)
class FakeDelivery:
    """What the machine looks at; `count` is the delivery's in its token."""

    count: int = 1
    remaining: float = 10.0
    answered: bool = False
    stream: int | None = None
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def received(self) -> SimpleNamespace:
        """What Redis said."""
        return SimpleNamespace(token=f"0:1-1:{self.count}:holder", count=self.count, stream=self.stream)


def deliveries(how_many: int, **fields: float) -> list[Any]:
    return [FakeDelivery(**fields) for _ in range(how_many)]  # type: ignore[arg-type]


def _fake(job: WorkerJob) -> FakeDelivery:
    return job.delivery  # type: ignore[return-value]


def _number(job: WorkerJob) -> int:
    return _fake(job).number


class Simulation:
    """Simulates a runner: it performs the actions at random times, and checks the rules with its own records."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.concurrency, ahead = rng.choice([1, 2, 5, 40]), rng.choice([0, 0, 1, 7])
        self.window = self.concurrency + max(ahead, self.concurrency // READ_AHEAD_DIVISOR)
        self.took = rng.choice([0.0, 0.02, 2.0])
        self.state = WorkerState(self.concurrency, ahead)
        self.state.max_deliveries = 4
        self.running: list[WorkerJob] = []
        self.reading: Read | None = None
        self.settling: SettleJobs | None = None
        self.looks = False
        self.lost: set[WorkerJob] = set()
        self.arrived: list[WorkerJob] = []
        self.told: Counter[WorkerJob] = Counter()
        self.settled: Counter[WorkerJob] = Counter()
        self.stopping = False

    def perform(self) -> None:
        """Take all actions there are; check what each may be."""
        while (action := self.state.next()) is not None:
            assert self.state.life != STOPPED
            if isinstance(action, WorkerJob):
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
                assert len(action.acks) <= MAX_PIGGYBACKED
                self.check_sent("ack", action.acks)
                self.reading = action
            elif isinstance(action, LookLater):
                assert not self.looks
                assert not self.stopping
                self.looks = True
            else:
                assert self.settling is None
                assert 0 < len(action.jobs) <= MAX_SETTLED_A_CALL
                self.check_sent(action.verb, action.jobs)
                self.settling = action

    def check_sent(self, verb: str, jobs: Sequence[WorkerJob]) -> None:
        for job in jobs:
            assert job not in self.lost, "settled after its lease was lost"
            assert job.outcome is not None
            assert job.outcome.verb == verb
            assert self.settled[job] == 0, "settled twice"
            assert not any(job in under_way for under_way in self.under_way()), "sent twice at a time"

    def under_way(self) -> list[Sequence[WorkerJob]]:
        """What is sent and has no answer yet."""
        return [self.settling.jobs if self.settling else (), self.reading.acks if self.reading else ()]

    def acks_return(self, answered: float) -> None:
        """The read that took acks along is over: each of these has its answer with this probability."""
        assert self.reading
        for job in self.reading.acks:
            fake = _fake(job)
            fake.answered = self.rng.random() < answered
            if fake.answered:
                self.settled[job] += 1
            else:
                self.fail(job)
        self.state.acked(self.reading.acks)

    def fail(self, job: WorkerJob) -> None:
        """This could not be settled; maybe its lease is over by now."""
        _fake(job).remaining = self.rng.choice([10.0, 10.0, 0.0])
        if _fake(job).remaining <= 0:
            self.lost.add(job)

    def read_returns(self) -> None:
        if self.reading is not None:
            most = self.reading.credit
            found = deliveries(self.rng.choice([most, self.rng.randint(0, most)]), count=self.rng.randint(1, 4))
            self.acks_return(answered=1.0)
            before = set(self.state.held)
            self.reading = None
            self.state.arrived(found)
            self.arrived += self.state.held - before

    def read_fails(self) -> None:
        if self.reading is not None:
            self.state.redis_fails()
            self.acks_return(answered=self.rng.choice([0.0, 0.5, 1.0]))
            self.reading = None
            self.state.read_failed()

    def handler_ends(self) -> None:
        if self.running:
            job = self.running.pop(self.rng.randrange(len(self.running)))
            job.started, job.ended = 1.0, 1.0 + self.took
            self.state.ended(job, self.rng.choice(OUTCOMES))

    def look_is_due(self) -> None:
        if self.looks:
            self.looks = False
            self.state.look()

    def settle_returns(self) -> None:
        if self.settling:
            self.settled.update(self.settling.jobs)
            self.state.settled(self.settling.jobs)
            self.settling = None

    def settle_fails(self) -> None:
        if self.settling:
            for job in self.settling.jobs:
                self.fail(job)
            self.state.unsettled(self.settling.jobs)
            self.settling = None

    def lease_is_lost(self) -> None:
        if self.state.held:
            job = self.rng.choice(sorted(self.state.held, key=_number))
            was_sent = any(job in under_way for under_way in self.under_way())
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
            self.time_is_up, self.look_is_due, self.state.redis_answers,
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
    state = WorkerState(3)
    assert state.next() == Read(3)
    assert state.next() is None
    state.arrived(deliveries(2))
    jobs = [state.next() for _ in range(2)]
    assert all(isinstance(job, WorkerJob) for job in jobs)
    assert state.next() == Read(1)
    assert state.next() is None
    assert not state.more


def test_messages_are_read_ahead_while_handlers_take_less_than_ten_ms_on_average() -> None:
    """What waits here waits for this worker's handlers, whoever comes meanwhile."""
    assert WorkerState(1, read_ahead=5).credit == 1, "before the first handler has ended nothing is known"
    state = _after(0.001)
    assert state.credit == 6
    state = _after(0.5)
    assert state.credit == 1
    for _ in range(100):
        _run(state, 0.001)
    assert state.credit == 6, "it is the mean of the last ones"


def _after(seconds: float) -> WorkerState:
    """A worker of which one handler has run for so long."""
    state = WorkerState(1, read_ahead=5)
    _run(state, seconds)
    return state


def _run(state: WorkerState, seconds: float) -> None:
    """One message comes, is handled for so many seconds, and settled."""
    while not isinstance(action := state.next(), Read):
        assert isinstance(action, SettleJobs)
        state.settled(action.jobs)
    state.arrived(deliveries(1))
    state.acked(action.acks)
    job = state.next()
    assert isinstance(job, WorkerJob)
    job.started, job.ended = 1.0, 1.0 + seconds
    state.ended(job, ACK)


def test_what_a_stream_brought_starts_first() -> None:
    """Its tenant has nothing else in flight; what comes from who waits anyway stands behind."""
    state = WorkerState(1, read_ahead=9)
    state.next()
    of_floods = deliveries(3)
    state.arrived(of_floods)
    running = state.next()
    assert isinstance(running, WorkerJob)
    state.arrived([*deliveries(1), *(newcomers := deliveries(2, stream=7)), *deliveries(1, stream=7, count=2)])
    state.ended(running, ACK)
    started = []
    while isinstance(job := state.next(), (WorkerJob, Read, SettleJobs)):
        if isinstance(job, WorkerJob):
            started.append(job.delivery)
            state.ended(job, ACK)
    assert started[:2] == newcomers
    assert started[2:4] == of_floods[1:]


def test_async_jobs_start_together_up_to_the_next_plain_one_and_the_last_slot() -> None:
    state = WorkerState(concurrency=5)
    assert isinstance(state.next(), Read)
    jobs = state.arrived(deliveries(7))
    for job, is_async in zip(jobs, [True, True, False, True, True, True, True], strict=True):
        job.call = SimpleNamespace(is_async=is_async)
    assert state.start_async() == jobs[:2]
    assert state.start_async() == []  # nobody passes the plain one
    assert state.next() is jobs[2]
    assert not state.lost(jobs[3])
    assert state.start_async() == jobs[4:6]
    assert state.busy == 5
    state.ended(jobs[0], ACK)
    assert state.start_async() == jobs[6:]


def test_settling_gathers_while_a_call_is_under_way() -> None:
    state = WorkerState(3)
    state.next()
    state.arrived(deliveries(3))
    first, second, third = (state.next() for _ in range(3))
    assert isinstance(first, WorkerJob)
    assert isinstance(second, WorkerJob)
    assert isinstance(third, WorkerJob)
    assert state.next() is None
    state.ended(first, OUTCOMES[2])
    assert state.next() == SettleJobs("reject", [first])
    assert state.next() == Read(1)
    state.ended(second, ACK)
    state.ended(third, OUTCOMES[1])
    assert state.next() is None
    state.settled([first])
    assert state.next() == SettleJobs("ack", [second])
    state.settled([second])
    assert state.next() == SettleJobs("nack", [third])


def handled(state: WorkerState, count: int) -> list[WorkerJob]:
    """Jobs that came with a read and are acked, but not sent."""
    assert isinstance(state.next(), Read)
    state.arrived(deliveries(count))
    jobs = [job for _ in range(count) if isinstance(job := state.next(), WorkerJob)]
    for job in jobs:
        state.ended(job, ACK)
    assert len(jobs) == count
    return jobs


def answer(jobs: Iterable[WorkerJob]) -> None:
    for job in jobs:
        _fake(job).answered = True


def test_a_read_takes_along_what_waits_to_be_acked() -> None:
    state = WorkerState(3)
    jobs = handled(state, 2)
    assert state.next() == Read(3, jobs)
    assert state.next() is None
    assert not state.more  # nobody need be woken while the read waits
    answer(jobs)
    state.acked(jobs)
    state.arrived(deliveries(1))
    assert {job for job in state.held if job.message != LEASED} == set()
    assert isinstance(state.next(), WorkerJob)


def test_what_ends_while_the_read_waits_is_settled_by_itself_at_once() -> None:
    state = WorkerState(2)
    state.next()
    state.arrived(deliveries(1))
    job = state.next()
    assert isinstance(job, WorkerJob)
    assert state.next() == Read(1)
    state.ended(job, ACK)
    assert state.more
    assert state.next() == SettleJobs("ack", [job])


def test_nacks_go_out_by_themselves_beside_a_read_with_acks() -> None:
    state = WorkerState(3)
    state.next()
    state.arrived(deliveries(2))
    done, failed = state.next(), state.next()
    assert isinstance(done, WorkerJob)
    assert isinstance(failed, WorkerJob)
    state.decide(done, ACK)
    state.decide(failed, OUTCOMES[1])
    assert [state.next(), state.next()] == [SettleJobs("nack", [failed]), Read(1, [done])]


def test_acks_of_a_read_that_failed_go_out_by_themselves_until_that_works() -> None:
    state = WorkerState(2)
    answered, open_one = jobs = handled(state, 2)
    assert state.next() == Read(2, jobs)
    answer([answered])
    state.acked(jobs)
    state.read_failed()
    assert state.held == {open_one}
    assert [state.next(), state.next()] == [SettleJobs("ack", [open_one]), Read(2)]
    state.unsettled([open_one])
    state.read_failed()
    assert [state.next(), state.next()] == [SettleJobs("ack", [open_one]), Read(2)]
    state.settled([open_one])
    state.read_failed()
    more = handled(state, 1)
    assert state.next() == Read(2, more)


def test_more_acks_than_a_round_trip_takes_are_settled_beside_the_read() -> None:
    state = WorkerState(MAX_PIGGYBACKED + 1)
    jobs = handled(state, MAX_PIGGYBACKED + 1)
    assert [state.next(), state.next()] == [SettleJobs("ack", jobs), Read(MAX_PIGGYBACKED + 1)]


def test_after_stop_nothing_is_taken_along() -> None:
    state = WorkerState(2)
    jobs = handled(state, 1)
    state.stop()
    assert state.next() == SettleJobs("ack", jobs)
    state.settled(jobs)
    assert state.next() is None
    assert state.life == STOPPED


def test_a_lost_lease_frees_its_slot_only_when_the_handler_ends() -> None:
    state = WorkerState(1)
    state.next()
    state.arrived(deliveries(1))
    job = state.next()
    assert isinstance(job, WorkerJob)
    assert state.lost(job)
    assert not state.lost(job)
    assert state.stuck == state.concurrency
    assert state.next() is None
    state.ended(job, ACK)
    assert (state.held, state.next()) == (set(), Read(1))


def test_what_waits_is_given_back_while_draining_since_that_does_not_count() -> None:
    state = WorkerState(2)
    state.max_deliveries = 4
    state.next()
    state.stop()
    state.arrived([*deliveries(1, count=4), *deliveries(1, count=3)])
    given_back = state.next()
    assert isinstance(given_back, SettleJobs)
    assert [(job.delivery.count, job.outcome) for job in given_back.jobs] == [(4, GIVE_BACK), (3, GIVE_BACK)]


def test_messages_for_which_several_queues_have_no_slot_are_given_back_at_once() -> None:
    slots = QueueSlots(2, [1, 1])
    busy, state = slots.shares[0], WorkerState(2, share=slots.shares[1])
    assert state.next() == Read(2)
    assert [busy.take(1), busy.came(1, 0.0)] == [1, 0]
    began, over = state.arrived(deliveries(2))
    assert state.next() is began
    assert state.next() == SettleJobs("give back", [over])
    assert state.next() is None, "it reads when a slot is free"
    state.settled([over])
    assert state.held == {began}


def test_away_changes_only_with_news() -> None:
    state = WorkerState(1)
    assert [state.redis_answers(), state.redis_fails(), state.redis_fails()] == [False, True, False]
    assert state.life == AWAY
    assert state.redis_answers()
    assert state.life == RUNNING


def test_unsettled_messages_hold_up_reading() -> None:
    state = WorkerState(MAX_SETTLED_A_CALL)
    for _ in range(20):
        action = state.next()
        if not isinstance(action, Read):
            break
        state.arrived(deliveries(action.credit))
        while isinstance(job := state.next(), WorkerJob):
            state.ended(job, ACK)
        if isinstance(job, Read):
            state.read_failed()
    assert not isinstance(state.next(), Read)
    assert len(state.held) <= 4 * MAX_SETTLED_A_CALL


def test_the_tables_name_only_states_that_they_have() -> None:
    for table in (LIFE, MESSAGE, SLOT):
        assert {to for events in table.values() for to in events.values()} <= set(table)
    assert LIFE[RETURNING]["nothing held"] == STOPPED
    assert SLOT[WAITING]["start"] == BUSY
