"""What a worker counts of its jobs: right for what is kept, and bounded whatever tasks and tenants come."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.protocol.beats import BUCKETS, MAX_MINUTE_TASKS, MAX_RANK, OTHER, bucket_of
from shardq.worker.ledger import MAX_TENANTS, WINDOW, Ledger
from shardq.worker.outcome import ACK, GIVE_BACK, Outcome

NACK = Outcome("nack")


def job(
    task: str | None = "t",
    tenant: str | bytes = "a",
    took: float = 0.5,
    waited: float = 0.002,
    *,
    outcome: Outcome = ACK,
) -> Any:
    received = SimpleNamespace(shard_key=tenant, pickup_delay=waited)
    return SimpleNamespace(
        outcome=outcome, call=SimpleNamespace(name=task), started=10.0, ended=10.0 + took,
        delivery=SimpleNamespace(received=received, task="told by the message"),
    )  # fmt: skip


def counted(jobs: Iterable[Any]) -> Ledger:
    ledger = Ledger()
    count(ledger, jobs)
    return ledger


def count(ledger: Ledger, jobs: Iterable[Any]) -> None:
    """Count jobs, those of each outcome together, as they are settled."""
    there = [*jobs]
    for verb in ("ack", "nack", "give back"):
        ledger.count([each for each in there if each.outcome.verb == verb], verb)


def test_jobs_are_counted_by_task_and_tenant() -> None:
    ledger = counted([job(), job(outcome=NACK), job("u", "b", 2.0), job(None), job(outcome=GIVE_BACK)])
    told = ledger.told(100.0)
    assert {name: (each.done, each.failed, each.seconds) for name, each in told.tasks.items()} == {
        "t": (1, 1, 1.0), "u": (1, 0, 2.0), "told by the message": (1, 0, 0.5),
    }  # fmt: skip
    assert told.tasks["t"].buckets[bucket_of(0.5)] == 2
    assert {key: each.done for key, each in told.tenants.items()} == {"a": 3, "b": 1}
    assert told.tenants["a"].buckets[bucket_of(0.002)] == 3
    assert sum(told.others) == 0


def test_the_last_minute_moves_on() -> None:
    ledger = Ledger()
    for beat in range(40):
        count(ledger, [job()] * (beat + 1))
        told = ledger.told(5.0 * beat)
        assert told.tasks["t"].done == sum(range(max(0, beat - 11), beat + 1)) + min(12, beat + 1)
    assert ledger.told(5.0 * 40 + WINDOW).tasks == {}


def test_beats_that_come_often_lose_nothing() -> None:
    ledger = Ledger()
    for beat in range(400):
        count(ledger, [job()])
        told = ledger.told(0.1 * beat)
    assert told.tasks["t"].done == 400
    assert len(ledger._parts) <= 14


@pytest.mark.parametrize("gaps", [[5.0] * 10 + [5.0, 0.01, 0.01], [4.3] * 14, [1.0] * 60, [0.7, 4.5]])
def test_beats_that_come_a_little_more_often_tell_of_one_minute(gaps: list[float]) -> None:
    """Some beats of a minute ask for more, and the next one follows at once."""
    ledger, now = Ledger(), 0.0
    for gap in gaps * (600 // len(gaps)):
        now += gap
        count(ledger, [job()] * round(100 * gap))
        done = ledger.told(now).tasks["t"].done
        if now > 2 * WINDOW:
            assert 5_000 <= done <= 6_600, f"{now:g}: 100 a second"


def test_what_was_done_is_told_once_unless_that_fails() -> None:
    ledger = counted([job(), job(outcome=NACK)])
    assert ledger.work() == {}  # it is put together by beats
    ledger.told(1.0)
    count(ledger, [job()])
    ledger.told(2.0)
    work = ledger.work()
    assert (work["t"].done, work["t"].failed, sum(work["t"].buckets)) == (2, 1, 3)
    assert ledger.work() == {}
    ledger.untold(work)
    assert ledger.work() == work


def test_a_flood_of_names_is_bounded_and_the_busiest_stay() -> None:
    """A hostile flood costs no memory, hides nobody who has more jobs, and is counted."""
    ledger = Ledger()
    busy = [job("busy", "busy")] * 3
    for number in range(20_000):
        count(ledger, [job(f"task-{number}", f"tenant-{number}")])
        if number % 40 == 0:
            count(ledger, busy)
        if number % 1000 == 0:
            ledger.told(number / 1000)
    assert len(ledger._now.tenants) <= MAX_TENANTS
    assert len(ledger._now.tasks) <= MAX_MINUTE_TASKS + 1
    told = ledger.told(21.0)
    assert next(iter(told.tenants)) == "busy"
    assert told.tenants["busy"].done == 1500
    assert len(told.tenants) <= MAX_RANK
    assert sum(told.others) + sum(sum(each.buckets) for each in told.tenants.values()) == 21_500
    assert sum(each.done for each in told.tasks.values()) == 21_500
    assert len(told.tasks) <= MAX_MINUTE_TASKS + 1
    assert OTHER in told.tasks
    assert all(len(each.buckets) == BUCKETS for each in told.tasks.values())
    assert sum(sys.getsizeof(part.tenants) for part in ledger._parts) < 200_000


def test_of_many_jobs_one_stands_for_several_and_sums_are_exact() -> None:
    """Whatever order they come in: what is looked at is chosen by chance."""
    ledger = Ledger()
    jobs = [job("even" if number % 2 else "odd", f"t{number % 8}", 0.1, 0.002) for number in range(16_000)]
    for first in range(0, len(jobs), 50):
        ledger.count(jobs[first : first + 50], "ack")
    for _ in range(3):
        ledger.count([job("odd", outcome=NACK)], "nack")
    told = ledger.told(1.0)
    assert sum(each.done for each in told.tasks.values()) == 16_000
    assert sum(each.failed for each in told.tasks.values()) == 3
    assert abs(told.tasks["even"].done - 8000) < 1000  # eleven times the deviation
    assert all(abs(told.tenants[f"t{number}"].done - 2000) < 1000 for number in range(8))
    assert abs(ledger.ran - 1601.5) < 1e-6
