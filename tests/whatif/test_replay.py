"""A replay is what the queue and its workers would have done: jobs of whole seconds, so each moment is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from shardq import Limits
from shardq.model import Plan
from shardq.whatif.alternative import Alternative
from shardq.whatif.history import Arrival, History, HistoryChange, Stay, Try
from shardq.whatif.replay import Replayed, replayed
from shardq.whatif.server import MovedClock, MovedServer

BEGAN = 1_790_000_000.0


@pytest.fixture(scope="module")
def moved() -> Iterator[MovedServer]:
    with MovedServer() as server:
        yield server


def job(at: float, key: str = "t", *ran: float, delay: float = 0.0, backoff: float = 1.0, **more: Any) -> Arrival:
    tries = tuple(Try(each, backoff) for each in (ran or (10.0,)))
    return Arrival(BEGAN + at, BEGAN + at + delay, key, tries, **more)


def history(jobs: Sequence[Arrival], stays: Sequence[Stay] = (), changes: Sequence[HistoryChange] = ()) -> History:
    return History("q", BEGAN, BEGAN + 600, jobs, changes, stays or [Stay(1, None, None)])


NEVER = -1.0


def firsts(found: Replayed) -> list[float]:
    """When each job began, in seconds since the begin."""
    return [NEVER if each.first_at is None else round(each.first_at - BEGAN, 2) for each in found.jobs]


def setting(at: float, scope: str, key: str | None, **more: Any) -> HistoryChange:
    usual: dict[str, Any] = {
        "kind": "seen",
        "weight": None,
        "weight_until": None,
        "cap": None,
        "rate": None,
        "burst": None,
    }
    usual |= {"plan": None, "limits_until": None, "paused": False, "paused_until": None, "values": []}
    return HistoryChange(BEGAN + at, scope, key, usual | more)


def test_jobs_begin_when_a_slot_is_free(moved: MovedServer) -> None:
    jobs = [job(0, "a"), job(1, "b"), job(13, "c"), job(45, "d")]
    found = replayed(history(jobs), Alternative("same"), moved)
    assert firsts(found) == [0, 10, 20, 45]
    assert [round(each.done_at or 0, 2) for each in found.jobs] == [BEGAN + at for at in (10, 20, 30, 55)]
    assert (round(found.ended - BEGAN, 2), round(found.slot_seconds)) == (55, 600)


def test_more_workers_and_more_slots_do_more_at_once(moved: MovedServer) -> None:
    jobs = [job(0, "a"), job(0, "b"), job(0, "c"), job(0, "d")]
    two = replayed(history(jobs), Alternative("two", workers=2), moved)
    assert sorted(firsts(two)) == [0, 0, 10, 10]
    four = replayed(history(jobs), Alternative("four", slots=4), moved)
    assert (firsts(four), round(four.slot_seconds)) == ([0, 0, 0, 0], 2400)


def test_workers_come_and_go(moved: MovedServer) -> None:
    stays = [Stay(1, BEGAN + 5, BEGAN + 20), Stay(2, BEGAN + 100, None)]
    jobs = [job(0, "a"), job(0, "b"), job(0, "c"), job(0, "d")]
    assert sorted(firsts(replayed(history(jobs, stays), Alternative("same"), moved))) == [5, 15, 100, 100]


def test_what_nobody_takes_is_never_delivered(moved: MovedServer) -> None:
    found = replayed(history([job(0, "a"), job(50, "b")], [Stay(1, None, BEGAN + 20)]), Alternative("same"), moved)
    assert firsts(found) == [0, NEVER]


def test_a_flood_holds_nobody_back(moved: MovedServer) -> None:
    jobs = [*(job(0, "flood") for _ in range(8)), job(1, "quiet")]
    begun = [firsts(replayed(history(jobs), Alternative("same"), moved, seed))[-1] for seed in range(16)]
    assert {*begun} == {10, 20}  # one read of eight serves those who wait
    assert begun.count(10) >= 10
    nothing = Alternative("no window", settings={"window": 0, "streams": 1, "streams_per_shard": 1})
    assert firsts(replayed(history(jobs), nothing, moved))[-1] == 80


def test_a_replay_comes_out_the_same_each_time(moved: MovedServer) -> None:
    jobs = [*(job(0, "flood") for _ in range(20)), *(job(at * 7, f"quiet-{at}", 3 + at % 5) for at in range(20))]
    mixed = history(jobs, [Stay(2, None, None)] * 2, [setting(90, "key", "flood", cap=2)])
    first = firsts(replayed(mixed, Alternative("same"), moved))
    with MovedServer() as other:
        assert all(firsts(replayed(mixed, Alternative("same"), each)) == first for each in (moved, other))
    assert any(firsts(replayed(mixed, Alternative("same"), moved, seed)) != first for seed in range(1, 9))


def test_hours_without_events_take_no_looks(moved: MovedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[float] = []
    move_to = MovedClock.move_to

    def counted(clock: MovedClock, moment: float) -> None:
        moves.append(moment)
        move_to(clock, moment)

    monkeypatch.setattr(MovedClock, "move_to", counted)
    day = 86_400.0
    paused = setting(5, "key", "a", kind="paused", paused=True)
    ends = setting(5, "key", "b", kind="paused", paused=True, paused_until=BEGAN + day / 2)
    resumed = setting(day, "key", "a", kind="resumed")
    jobs = [job(7, "a"), job(7, "b")]
    long = History("q", BEGAN, BEGAN + day, jobs, [paused, ends, resumed], [Stay(1, None, None)])
    found = replayed(long, Alternative("same"), moved)
    assert firsts(found) == [day, day / 2]
    assert len(moves) < 20, moves


def test_a_job_that_is_delayed_begins_when_it_is_due(moved: MovedServer) -> None:
    assert firsts(replayed(history([job(0, delay=33)]), Alternative("same"), moved)) == [33]


def test_a_job_that_failed_is_tried_again(moved: MovedServer) -> None:
    found = replayed(history([job(0, "t", 10, 5, backoff=7.0)]), Alternative("same"), moved)
    assert [round((each.done_at or 0) - BEGAN, 2) for each in found.jobs] == [22]


def test_a_job_that_was_cancelled_is_gone_unless_it_begins_before(moved: MovedServer) -> None:
    jobs = [job(0, "a"), job(1, "b", 10, cancelled_at=BEGAN + 5)]
    assert firsts(replayed(history(jobs), Alternative("same"), moved)) == [0, NEVER]
    assert firsts(replayed(history(jobs), Alternative("two", workers=2), moved)) == [0, 1]


def test_a_long_job_keeps_its_lease(moved: MovedServer) -> None:
    jobs = [job(0, "a", 100), job(1, "b", 100)]
    short = Alternative("short leases", settings={"visibility_timeout": 6.0})
    assert firsts(replayed(history(jobs), short, moved)) == [0, 100]


def test_limits_and_plans_of_the_alternative_hold(moved: MovedServer) -> None:
    jobs = [job(0, "a"), job(0, "a"), job(0, "b"), job(0, "b")]
    capped = Alternative("capped", workers=4, limits={"a": Limits(max_in_flight=1)})
    assert firsts(replayed(history(jobs), capped, moved)) == [0, 10, 0, 0]
    planned = Alternative("on a plan", workers=4, limits={"b": "slow"}, plans={"slow": Plan(rate=0.1, burst=1)})
    assert firsts(replayed(history(jobs), planned, moved)) == pytest.approx([0, 0, 0, 10], abs=0.1)


def test_what_was_set_is_set_again_at_its_time(moved: MovedServer) -> None:
    changes = [setting(5, "key", "a", cap=1), setting(25, "key", "a")]
    jobs = [job(10, "a"), job(10, "a"), job(40, "a"), job(40, "a")]
    stays = [Stay(4, None, None)]
    assert firsts(replayed(history(jobs, stays, changes), Alternative("same"), moved)) == [10, 20, 40, 40]
    free = Alternative("free", limits={"a": Limits()})
    assert firsts(replayed(history(jobs, stays, changes), free, moved)) == [10, 10, 40, 40]


@pytest.mark.parametrize("key", ["a", None])
def test_a_pause_holds_as_long_as_it_did(moved: MovedServer, key: str | None) -> None:
    scope = "queue" if key is None else "key"
    ends = setting(5, scope, key, kind="paused", paused=True, paused_until=BEGAN + 25)
    resumed = [setting(5, scope, key, kind="paused", paused=True), setting(31, scope, key, kind="resumed")]
    jobs = [job(0, "a"), job(7, "a")]
    for changes, at in (([ends], 25), (resumed, 31)):
        assert firsts(replayed(history(jobs, changes=changes), Alternative("same"), moved)) == [0, at]


def test_settings_are_those_that_were_but_for_those_of_the_alternative(moved: MovedServer) -> None:
    changes = [setting(0, "queue", None, values=[("max_in_flight", "1"), ("streams", "8"), ("journal", "100")])]
    jobs, stays = [job(0, "a"), job(0, "a")], [Stay(2, None, None)]
    assert firsts(replayed(history(jobs, stays, changes), Alternative("same"), moved)) == [0, 10]
    two = Alternative("two", settings={"max_in_flight": 2})
    assert firsts(replayed(history(jobs, stays, changes), two, moved)) == [0, 0]


def test_a_weight_is_a_share(moved: MovedServer) -> None:
    jobs = [*(job(0, "gold") for _ in range(40)), *(job(0, "tin") for _ in range(40))]
    for weight, expected in ((1, 20), (4, 32)):
        found = firsts(replayed(history(jobs), Alternative("w", workers=2, weights={"gold": weight}), moved))
        served = sum(at < 200 for at in found[:40])
        assert abs(served - expected) <= 2
