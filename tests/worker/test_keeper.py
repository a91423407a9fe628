"""The keeper by hand, with a clock that stands still: when it extends which leases, and how many calls that takes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from shardq import Client, Delivery, Queue
from shardq.client.leases import delivered
from shardq.errors import BackendTimeout
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.settle.settle import Settled
from shardq.testing import ManualClock
from shardq.timing import ThreadTimer
from shardq.worker import keeper as module
from shardq.worker.keeper import Keeper
from shardq.worker.outcome import ACK
from shardq.worker.plan import WorkerPlan
from shardq.worker.state import BUSY, GONE, LEASED, WorkerJob, WorkerState

LEASE = 30.0
WINDOW = 1.0
Extend = Callable[[list[Received]], list[Settled]]


class Extender:
    """The keeper's own client: it counts the calls, and answers them as *answer* says."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.calls: list[int] = []
        self.looks: list[int] = []  # the same of calls that extend nothing
        self.cancels: bytes | None = None
        self.answer: Extend = lambda held: [Settled.OK] * len(held)

    def state_of(self, name: str, settings: object) -> QueueState:
        """The state of the queue."""
        return self.queue.state

    def run(self, op: Any) -> Any:
        """Answer an extension, or how many messages were cancelled."""
        if op.gi_code.co_name == "ask":
            op.close()
            return self.cancels
        held, duration = op.gi_frame.f_locals["deliveries"], op.gi_frame.f_locals["duration"]
        op.close()
        (self.looks if duration is None else self.calls).append(len(held))
        return self.answer(held)

    def close(self) -> None:
        """Nothing is open."""


class Bench:
    """A worker's state, its keeper without the thread, and the clock."""

    def __init__(self, queue: Queue, clock: ManualClock) -> None:
        self.queue, self.clock, self.lost_jobs = queue, clock, list[WorkerJob]()
        self.state = WorkerState(1_000_000)
        self.extender = Extender(queue)
        self.keeper = Keeper(queue.client, queue.state, WorkerPlan(visibility_timeout=LEASE), self)
        self.keeper._client = cast("Client", self.extender)
        self.timer = queue.client.timer

    def lost(self, job: WorkerJob) -> None:
        """What the keeper reports."""
        self.lost_jobs.append(job)
        self.state.lost(job)

    def is_responsive(self) -> bool:
        """Always."""
        return True

    def arrive(self, count: int = 1) -> list[WorkerJob]:
        """So many messages are read, and their handlers start."""
        deadline = self.clock.monotonic() + LEASE
        row = Received("1-1-0", "t", 1, deadline, b"x", "b", {}, "", 0, 0.0, "0:1-1:1:holder")
        jobs = self.state.arrived(delivered(Delivery, [row] * count, self.queue))
        while self.state._startable:
            self.state._start(self.state._line().popleft())
        self.keeper.keep(jobs)
        return jobs

    def end(self, job: WorkerJob) -> None:
        """Its handler is done, and the message acked."""
        self.state.ended(job, ACK)
        cast("Delivery", job.delivery)._lease.settle()

    def passes(self, seconds: float) -> None:
        """Time passes, in steps much shorter than a window."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.timer.run_due()
            while not self.keeper._owed.empty():
                self.keeper._round()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "PULSE", WINDOW)
    monkeypatch.setattr(ThreadTimer, "_wake", lambda self: None)  # this test moves the wheel, no thread does
    clock = ManualClock()
    return Bench(Client.from_url("redis://127.0.0.1:1", clock=clock).queue("jobs", create=True), clock)


def test_leases_are_extended_by_one_call_after_a_third_of_their_time(bench: Bench) -> None:
    """They share an entry of the wheel with all that are due in the same window."""
    for _ in range(9):
        bench.arrive(100)
        bench.passes(0.1)
    assert len(bench.timer) <= 900 + 2
    bench.passes(LEASE / 3 - 1.0)
    assert bench.extender.calls == []
    bench.passes(2 * WINDOW + 0.1)
    assert (sum(bench.extender.calls), len(bench.extender.calls)) == (900, 2)
    assert min(job.delivery.remaining for job in bench.state.held) > LEASE - 3
    assert not bench.lost_jobs


def test_after_a_cancel_all_leases_are_looked_at_once_and_at_once(bench: Bench) -> None:
    """The queue's count of cancels tells that there was one, and one call whose it was. No lease gets another end."""
    (unwanted,) = bench.arrive()
    (longer,) = bench.arrive()
    cast("Delivery", longer.delivery)._extended(bench.clock.monotonic(), 5 * LEASE)
    bench.passes(1.0)
    bench.keeper._owed.put(())
    bench.passes(0.1)
    assert bench.extender.looks == [], "nothing was cancelled"
    bench.extender.cancels = b"1"
    bench.extender.answer = lambda held: [
        Settled.CANCELLED if each is unwanted.delivery.received else Settled.OK for each in held
    ]
    bench.keeper._looked_at -= 1.0
    bench.keeper._owed.put(())
    bench.passes(0.1)
    assert (bench.extender.looks, set(bench.lost_jobs)) == ([2], {unwanted})
    assert longer.delivery.remaining > 4 * LEASE
    bench.keeper._looked_at -= 1.0
    bench.keeper._owed.put(())
    bench.passes(0.1)
    assert (bench.extender.looks, bench.extender.calls) == ([2], []), "the count is the same as before"


def test_a_look_that_got_no_answer_is_made_again(bench: Bench) -> None:
    def fail(held: list[Received]) -> list[Settled]:
        raise BackendTimeout("Redis is away")

    bench.extender.answer = fail
    bench.extender.cancels = b"1"
    bench.arrive(2)
    for _ in range(2):
        bench.keeper._looked_at -= 1.0
        bench.keeper._owed.put(())
        bench.passes(0.1)
    assert (bench.extender.looks, bench.extender.calls) == ([2, 2], [])
    assert not bench.lost_jobs


def test_what_ended_before_is_forgotten(bench: Bench) -> None:
    """Most handlers end before anything is due: nothing is sent, and nothing of them is kept."""
    for job in bench.arrive(100):
        bench.end(job)
    assert [len(batch.jobs) for batch in bench.keeper._batches.values()] == [0]
    bench.passes(2 * LEASE)
    assert (bench.extender.calls, len(bench.timer), bench.keeper._batches) == ([], 0, {})


def test_what_cannot_be_extended_is_tried_again_in_each_window_and_then_lost(bench: Bench) -> None:
    def fail(held: list[Received]) -> list[Settled]:
        raise BackendTimeout("Redis is away")

    bench.extender.answer = fail
    (job,) = bench.arrive()
    bench.passes(LEASE - 0.2)
    assert not bench.lost_jobs
    assert LEASE * 2 / 3 - 2 <= len(bench.extender.calls) <= LEASE * 2 / 3 + 2
    bench.passes(0.4)
    assert bench.lost_jobs[0] is job
    assert (job.message, job.delivery.lost) == (GONE, True)
    calls = len(bench.extender.calls)
    bench.passes(LEASE)
    assert len(bench.extender.calls) == calls


def test_any_other_error_is_tried_again_too(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([ZeroDivisionError("a bug")])

    def fail_once(held: list[Received]) -> list[Settled]:
        for error in answers:
            raise error
        return [Settled.OK]

    bench.extender.answer = fail_once
    bench.arrive()
    with pytest.raises(ZeroDivisionError):
        bench.passes(LEASE / 2)
    bench.passes(2 * WINDOW)
    assert (bench.extender.calls, bench.lost_jobs) == ([1, 1], [])


@pytest.mark.parametrize("result", [Settled.LOST, Settled.CANCELLED])
def test_a_lease_that_redis_ended_is_lost(bench: Bench, result: Settled) -> None:
    bench.extender.answer = lambda held: [result]
    (job,) = bench.arrive()
    told: list[Delivery] = []
    cast("Delivery", job.delivery).on_lost(told.append)
    bench.passes(LEASE / 2)
    assert (job.message, job.delivery.lost, bench.extender.calls) == (GONE, True, [1])


def test_a_handler_may_extend_its_lease_itself(bench: Bench) -> None:
    """Longer: nothing is due before two thirds of a lease time are left. Shorter: it is extended in time."""
    longer, shorter = bench.arrive(2)
    now = bench.clock.monotonic()
    cast("Delivery", longer.delivery)._extended(now, 5 * LEASE)
    cast("Delivery", shorter.delivery)._extended(now, 3.0)
    bench.passes(2.0)
    assert bench.extender.calls == [1]
    assert shorter.delivery.remaining > LEASE - 3
    bench.end(shorter)
    bench.passes(4 * LEASE)
    assert bench.extender.calls == [1]
    bench.passes(LEASE / 3)
    assert (bench.extender.calls, bench.lost_jobs) == ([1, 1], [])


def test_a_closed_keeper_reports_nothing(bench: Bench) -> None:
    bench.arrive(3)
    bench.keeper.close()
    bench.arrive(1)
    bench.passes(2 * LEASE)
    assert (bench.lost_jobs, bench.extender.calls, len(bench.timer)) == ([], [], 0)


def test_against_a_scan(bench: Bench, rng: Random) -> None:
    """Whatever comes and goes: at any moment a scan finds no lease that has less than half of its time left."""
    held: list[WorkerJob] = []
    for _ in range(400):
        held += bench.arrive(rng.randrange(4))
        for job in rng.sample(held, min(len(held), rng.randrange(3))):
            bench.end(job)
            held.remove(job)
        if held and rng.random() < 0.05:
            job = rng.choice(held)
            cast("Delivery", job.delivery)._extended(bench.clock.monotonic(), rng.uniform(2 * WINDOW, 2 * LEASE))
        before = {job: job.delivery.received for job in held}
        bench.passes(rng.choice((0.1, 0.5, 3.0)))
        for job, received in before.items():
            assert job.delivery.remaining > LEASE / 2 or received.deadline < job.delivery.received.deadline
            assert (job.message, job.slot, job.delivery.lost) == (LEASED, BUSY, False)
    windows = bench.clock.monotonic() / WINDOW
    assert len(bench.extender.calls) <= windows + 400 * 0.15
    assert set(held) == {job for job in bench.state.held if job.message == LEASED}
    assert sum(len(batch.jobs) for batch in bench.keeper._batches.values()) == len(held)
    assert not bench.lost_jobs
