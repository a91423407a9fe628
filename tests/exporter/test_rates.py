"""What one worker does is what those did that had time to: workers that have just started start no others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shardq.exporter.policy import Numbers, Policy, numbers_of
from shardq.exporter.rates import REMEMBERED_SECONDS, WorkerRates
from shardq.model.worker_status import WorkerStatus
from shardq.outlook.outlook import outlook_of
from shardq.testing import ManualClock
from tests.outlook.given import NOON, facts, minutes, stats, worker


def looked(rates: WorkerRates, old: int, new: int, age: float = 30.0, **more: Any) -> Numbers:
    """What is told of *old* workers, which do their best, and *new* ones, which have done nothing yet."""
    usual = [replace(worker(f"o{each}", done=4, slots=4, busy=4.0), tasks=()) for each in range(old)]
    young = [replace(usual_new(f"n{each}"), started=NOON - age) for each in range(new)]
    workers: tuple[WorkerStatus, ...] = (*usual, *young)
    in_flight = 4 * len(workers)
    now = stats(backlog=2000 - in_flight, in_flight=in_flight)
    past = minutes(3, written=5, done=20, runnable=2000, slots=20, busy=20.0)
    outlook = outlook_of(facts(now, workers=workers, minutes=past))
    return rates.told(numbers_of(now, outlook)._replace(**more), outlook, workers)


def usual_new(name: str) -> WorkerStatus:
    return replace(worker(name, done=0, slots=4, busy=4.0), tasks=())


def wanted(numbers: Numbers) -> int:
    return Policy("drain", 1800).wanted(numbers)


def test_workers_that_have_done_nothing_yet_start_no_others() -> None:
    """They would: 5 workers want 18, 20 want 69, 50 want 163."""
    rates = WorkerRates(ManualClock())
    first = wanted(looked(rates, 5, 0))
    assert 15 <= first <= 20
    for new in (1, 13, 15, 45):
        assert wanted(looked(rates, 5, new)) == max(first, 5 + new)  # those that are busy stay


def test_what_is_known_by_nobody_else_is_what_the_older_ones_did() -> None:
    """The scaler has just started, too."""
    assert wanted(looked(WorkerRates(ManualClock()), 5, 10)) == wanted(looked(WorkerRates(ManualClock()), 5, 0))


def test_if_all_are_new_there_are_twice_as_many_at_most() -> None:
    numbers = looked(WorkerRates(ManualClock()), 0, 8)
    assert numbers.per_worker is None
    assert wanted(numbers) == 16


def test_a_deploy_that_starts_all_anew_changes_nothing() -> None:
    rates = WorkerRates(ManualClock())
    before = wanted(looked(rates, 18, 0))
    assert wanted(looked(rates, 0, 18)) == max(18, before)


def test_what_was_measured_is_not_believed_for_ever_while_workers_come() -> None:
    clock = ManualClock()
    rates = WorkerRates(clock)
    known = looked(rates, 5, 0).per_worker
    clock.advance(REMEMBERED_SECONDS - 1)
    assert looked(rates, 0, 5).per_worker == known
    clock.advance(1)
    assert looked(rates, 0, 5).per_worker is None


def test_those_that_work_count_once_they_have_lived_for_some_jobs() -> None:
    rates = WorkerRates(ManualClock())
    known = looked(rates, 5, 0).per_worker
    slow = looked(rates, 5, 5, age=7200).per_worker
    assert known is not None
    assert slow == pytest.approx(known / 2)


def test_what_one_did_and_could_do_is_known_also_while_none_works() -> None:
    rates = WorkerRates(ManualClock())
    known = looked(rates, 5, 0)
    assert known.slots_each == 4
    none = stats(backlog=10)
    outlook = outlook_of(facts(none))
    told = rates.told(numbers_of(none, outlook), outlook, ())
    assert (told.workers, told.per_worker, told.slots_each) == (0, known.per_worker, 4)
    told = WorkerRates(ManualClock()).told(numbers_of(none, outlook), outlook, (), 64.0)
    assert (told.per_worker, told.slots_each) == (None, 64.0)
