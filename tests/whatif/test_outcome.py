"""The numbers of a history and of its replay."""

from __future__ import annotations

from shardq.whatif.comparison import Comparison, cheapest
from shardq.whatif.history import Arrival, History, Stay, Try
from shardq.whatif.outcome import Projection, Waits, outcome_of, outcome_was, quiet_tenants, waits_of
from shardq.whatif.replay import Ran, Replayed


def job(key: str, waited: float | None, ran: float = 1.0, cancelled_at: float | None = None) -> Arrival:
    return Arrival(100.0, 100.0, key, (Try(ran),), waited, 200.0, cancelled_at)


JOBS = [job("loud", 50.0, 100.0), job("loud", 10.0, 100.0), job("a", 1.0), job("b", 2.0), job("c", None)]
HISTORY = History("q", 100.0, 200.0, JOBS, (), [Stay(2, None, None), Stay(1, 150.0, 170.0)])


def test_what_was_is_told_by_the_jobs_themselves() -> None:
    found = outcome_was(HISTORY, within=10.0)
    assert (found.all, found.worst, found.worst_tenant) == (Waits(4, 2.0, 50.0), Waits(2, 10.0, 50.0), "loud")
    assert (found.in_time, found.never) == (3 / 5, 1)
    assert (found.slot_seconds, found.busy) == (220.0, 202 / 220)


def test_a_replay_is_told_by_its_deliveries() -> None:
    ran = [Ran(130.0, 190.0), Ran(100.0, 200.0), Ran(100.0, 101.0), Ran(103.0, 104.0), Ran(102.0, 105.0)]
    found = outcome_of("two", HISTORY, Replayed(ran, 200.0, 400.0), within=10.0)
    assert (found.name, found.all.p99, found.in_time, found.never) == ("two", 30.0, 4 / 5, 0)
    assert (found.quiet.p99, found.slot_seconds, found.busy) == (3.0, 400.0, 203 / 400)


def test_what_was_cancelled_in_time_counts_nowhere() -> None:
    history = History("q", 100.0, 200.0, [job("a", 1.0), job("a", None, cancelled_at=120.0)], (), ())
    found = outcome_was(history, within=10.0)
    assert (found.all.jobs, found.in_time, found.never) == (1, 1.0, 0)


def test_the_quieter_half_are_those_who_worked_least() -> None:
    assert quiet_tenants(HISTORY) == {"a", "b"}
    assert quiet_tenants(History("q", 0.0, 1.0, [job("only", 1.0)], (), ())) == {"only"}


def test_percentiles_are_waits_of_jobs() -> None:
    assert waits_of([float(each) for each in range(1, 101)]) == Waits(100, 50.0, 99.0)
    assert waits_of([]) == Waits(0, None, None)


def outcome(name: str, in_time: float, slot_seconds: float, never: int = 0) -> Projection:
    waits = Waits(1, 1.0, 1.0)
    return Projection(name, waits, waits, waits, "t", in_time, never, slot_seconds, 0.5)


def test_the_cheapest_keeps_the_objective_and_leaves_nothing() -> None:
    replays = [
        outcome("slow", 0.9, 10.0),
        outcome("left", 1.0, 20.0, never=3),
        outcome("good", 0.99, 30.0),
        outcome("best", 1.0, 40.0),
    ]
    assert cheapest(Comparison(outcome("was", 1.0, 5.0), replays), 0.99) == replays[2]
    assert cheapest(Comparison(outcome("was", 1.0, 5.0), replays[:1]), 0.99) is None
