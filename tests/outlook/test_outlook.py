"""When a backlog is served, and what is said where nobody can know; when each tenant is; and what would help."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
from msgspec.structs import replace

from shardq.model.outlook import Outlook
from shardq.model.waiter import Waiter
from shardq.model.worker_status import TenantWork
from shardq.outlook.facts import Facts
from shardq.outlook.fluid import FluidPart, flow
from shardq.outlook.outlook import outlook_of
from shardq.outlook.verdict import verdict_of
from tests.outlook.given import NOON, facts, group, minutes, stats, worker

A_BACKLOG = (Waiter("acme", held_back=3000), Waiter("other", held_back=3000))


def near(seconds: float | None, expected: float, part: float = 0.05) -> bool:
    """Whether a time is about what was expected."""
    return seconds is not None and math.isclose(seconds, expected, rel_tol=part)


# When all is served.


def test_a_backlog_is_served_at_the_rate_of_the_last_minute_less_what_is_written() -> None:
    """600 are done in a minute, and 150 written."""
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=minutes(5, written=150, done=600, busy=8)))
    assert (found.drains, found.why, found.rate, found.written_rate) == ("drains", "", 10.0, 2.5)
    assert near(found.drain_seconds, 6000 / 7.5)


def test_nothing_waits() -> None:
    found = outlook_of(facts(workers=(worker(),)))
    assert (found.drains, found.drain_seconds, found.helps, found.tenants) == ("empty", 0.0, (), ())


@pytest.mark.parametrize(("written", "drains"), [(580, "drains"), (590, "grows"), (6000, "grows")])
def test_more_is_written_than_is_done(written: int, drains: str) -> None:
    past = minutes(5, written=written, done=600, runnable=6000, busy=8)
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=past))
    assert found.drains == drains
    assert found.grows == (drains == "grows")
    assert (found.drain_seconds is None) == found.grows


def test_nobody_knows_how_fast_it_is_served() -> None:
    """A reader that does not tell of itself, and a queue without a past."""
    found = outlook_of(facts(None, A_BACKLOG, is_read=True))
    assert (found.drains, found.drain_seconds, found.rate) == ("unknown", None, None)
    assert found.why == "nobody knows yet how fast it is served"
    assert [each.served_in for each in found.tenants] == [None, None]
    assert found.helps == ()


def test_a_young_queue_is_reckoned_as_if_no_more_were_written() -> None:
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),)))
    assert (found.drains, found.why, found.written_rate) == ("drains", "if no more is written", None)
    assert near(found.drain_seconds, 600)


def test_of_a_first_burst_nobody_knows_whether_it_goes_on() -> None:
    """There was one minute, in which more was written than can be done in one."""
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=minutes(1, written=6000, done=600, busy=8)))
    assert (found.drains, found.why, found.grows) == ("drains", "if no more is written", False)


def test_one_burst_says_nothing_of_the_minutes_to_come() -> None:
    past = minutes(10, written=[60] * 8 + [6000, 60], done=600, runnable=6000, busy=8)
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=past))
    assert (found.written_rate, found.why) == (1.0, "")
    assert near(found.drain_seconds, 6000 / 9)
    just_now = minutes(10, written=[60] * 9 + [6000], done=600, busy=8)
    assert outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=just_now)).written_rate == 1.0


def test_minutes_of_long_ago_say_nothing() -> None:
    past = minutes(5, written=6000, done=9000, last=NOON - 600)
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=past))
    assert (found.rate, found.written_rate) == (10.0, None)


def test_idle_slots_could_do_more_than_was_done() -> None:
    """Little came until now, so the rate of the last minute is what came: slots and the time of a job say more."""
    idle = (worker(slots=16, busy=1.0, done=60, seconds=1.0),)
    found = outlook_of(
        facts(None, A_BACKLOG, workers=idle, minutes=minutes(5, written=60, done=60, slots=16, busy=1.0))
    )
    assert near(found.drain_seconds, 6000 / 15)


def test_who_began_a_few_seconds_ago_did_it_in_these() -> None:
    young = worker(done=100)
    young = replace(young, started=young.heard - 10)
    assert outlook_of(facts(None, A_BACKLOG, workers=(young,))).rate == 10.0


def test_of_too_many_workers_some_stand_for_all() -> None:
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), worker_factor=20.0))
    assert (found.rate, found.slots, found.workers) == (200.0, 160, 20)


def test_a_queue_with_limits_of_its_own_is_served_no_faster() -> None:
    limits: dict[str, Any]
    for limits, capacity in (({"total_rate": 2.0}, 2.0), ({"total_in_flight": 4}, 5.0)):
        given = facts(None, A_BACKLOG, workers=(worker(),), **limits)
        assert near(outlook_of(given).drain_seconds, 6000 / capacity)


def test_a_paused_queue_is_served_after_its_pause_or_never() -> None:
    for until, drains in ((NOON + 100, "drains"), (math.inf, "stands")):
        given = stats(backlog=6000, runnable=0, paused_until=until)
        found = outlook_of(facts(given, A_BACKLOG, workers=(worker(),)))
        assert found.drains == drains
        assert found.reasons["pause"] == 6000
        assert found.helps[0].what == "the end of the pause"
        assert near(found.helps[0].seconds, 600)
    assert found.why == "it is paused"
    ends = outlook_of(facts(stats(backlog=6000, runnable=0, paused_until=NOON + 100), A_BACKLOG, workers=(worker(),)))
    assert near(ends.drain_seconds, 700)


def test_the_end_of_a_pause_is_no_use_where_nobody_reads() -> None:
    given = stats(backlog=5, limited=5, runnable=0, paused_until=NOON + 60)
    (end,) = outlook_of(facts(given, (Waiter("acme", held_back=5),))).helps
    assert (end.what, end.helps, end.text) == ("the end of the pause", False, "no use: no worker reads it")


def test_nobody_reads() -> None:
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(state="gone", heard=NOON - 60),)))
    assert (found.drains, found.why, found.is_read) == ("stands", "no worker reads it", False)
    assert found.helps[0].text == "8 slots would serve all in about 10 min"


def test_what_waits_is_paused() -> None:
    rows = (Waiter("acme", held_back=50, allowance=0, paused_until=math.inf),)
    found = outlook_of(facts(stats(backlog=50, limited=50), rows, workers=(worker(),)))
    assert (found.drains, found.why, found.tenants[0].served_in) == ("stands", "what waits is paused", None)
    [more, pause] = found.helps
    assert (more.what, more.helps) == ("two more workers", False)
    assert (pause.what, pause.helps, pause.text) == ("no pause of acme", True, "its 50 in 5.0 s")


# When each is served.


def served_in(rows: tuple[Waiter, ...], tenants: tuple[TenantWork, ...] = ()) -> dict[str, float | None]:
    """Return when each is served at 10 messages a second."""
    limited = sum(each.blocked for each in rows)
    given = stats(backlog=sum(each.backlog for each in rows), limited=limited)
    found = outlook_of(facts(given, rows, workers=(worker(tenants=tenants),)))
    return {str(each.shard_key): each.served_in for each in found.tenants}


def test_who_waits_has_equal_parts_and_who_is_done_leaves_the_rest() -> None:
    found = served_in((Waiter("large", held_back=1000), Waiter("small", held_back=100)))
    assert near(found["small"], 20)
    assert near(found["large"], 110)


def test_weights_are_parts() -> None:
    found = served_in((Waiter("heavy", held_back=300, weight=3), Waiter("light", held_back=300)))
    assert near(found["heavy"], 40)
    assert near(found["light"], 60)


def test_parts_are_equal_in_time_of_work() -> None:
    """Jobs of one take four times as long."""
    tenants = (TenantWork("slow", 10, 2.0, None), TenantWork("quick", 40, 0.5, None))
    found = served_in((Waiter("slow", held_back=100), Waiter("quick", held_back=400)), tenants=tenants)
    assert found["slow"] is not None
    assert near(found["quick"], found["slow"], 0.02)


def test_limits_and_pauses_have_their_own_times() -> None:
    rows = (
        Waiter("rated", held_back=100, rate=2.0, allowance=0),
        Waiter("burst", held_back=100, rate=2.0, allowance=60),
        Waiter("capped", held_back=100, max_in_flight=2, allowance=0),
        Waiter("paused", held_back=10, allowance=0, paused_until=NOON + 1000),
        Waiter("forever", held_back=10, allowance=0, paused_until=math.inf),
        Waiter("free", held_back=50),
    )
    found = served_in(rows)
    assert near(found["rated"], 50)
    assert near(found["burst"], 24, 0.2)
    assert near(found["capped"], 40)
    assert near(found["paused"], 1001)
    assert found["forever"] is None
    assert near(found["free"], 15, 0.3)


def test_of_many_some_stand_for_all() -> None:
    """A tenth of the small ones was looked at, and the large one."""
    rows = (Waiter("large", held_back=5000), *(Waiter(f"t{number}", in_streams=1) for number in range(500)))
    given = facts(stats(backlog=10_000), rows, workers=(worker(done=6000, seconds=0.08),), are_all=False)
    found = outlook_of(given)
    assert found.tenants_are_some
    assert math.isclose(found.tenants_waiting, 5000, rel_tol=0.05)
    assert near(found.drain_seconds, 100)


def model(parts: list[FluidPart], capacity: float, step: float = 0.01) -> list[float]:
    """Return when each is served, by small steps in which all have their part, what one may not have is dealt again."""
    left, done = [each.left for each in parts], [0.0 if each.left <= 0 else math.inf for each in parts]
    credit = [each.credit for each in parts]
    now = 0.0
    while now < 2000 and any(math.isinf(at) for at in done):
        active = {at for at, each in enumerate(parts) if math.isinf(done[at]) and each.free_at <= now}
        spare, paces = capacity, dict.fromkeys(active, 0.0)
        for _ in parts:
            open_ = [at for at in active if paces[at] < parts[at].top + max(0.0, credit[at]) / step - 1e-9]
            weights = sum(parts[at].weight * parts[at].count for at in open_)
            if not open_ or spare <= 1e-12:
                break
            level, used = spare / weights, 0.0
            for at in open_:
                most = parts[at].top + max(0.0, credit[at]) / step - paces[at]  # no more than the credit in one step
                more = min(most, level * parts[at].weight / parts[at].cost)
                paces[at] += more
                used += more * parts[at].cost * parts[at].count
            spare -= used
        now += step
        for at, pace in paces.items():
            left[at] -= pace * step
            credit[at] -= max(0.0, pace - parts[at].top) * step if math.isfinite(parts[at].top) else 0.0
            if left[at] <= 0:
                done[at] = now
    return done


def test_the_fluid_flows_as_a_model_of_small_steps(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        parts = [
            FluidPart(
                left=rng.choice((0.5, 5.0, rng.uniform(1, 60))),
                weight=rng.choice((1, 1, 3)),
                cost=rng.choice((1.0, 1.0, 0.3, 4.0)),
                top=rng.choice((math.inf, math.inf, 0.7, 3.0)),
                credit=rng.choice((0.0, 4.0)),
                free_at=rng.choice((0.0, 0.0, 7.5)),
                count=rng.choice((1.0, 1.0, 5.0)),
            )
            for _ in range(rng.randrange(1, 7))
        ]
        expected = model(parts, 10.0)
        flow(parts, 10.0)
        for part, at in zip(parts, expected, strict=True):
            assert math.isclose(part.done_at, at, rel_tol=0.03, abs_tol=0.1), parts


# What would help.


def advice(rows: tuple[Waiter, ...]) -> Outlook:
    """Return the outlook of a queue of two workers that do 10 messages a second together."""
    limited = sum(each.blocked for each in rows)
    given = stats(backlog=sum(each.backlog for each in rows), limited=limited)
    workers = (worker(done=300), worker("w2", done=300))
    return outlook_of(
        facts(given, rows, workers=workers, minutes=minutes(5, done=600, runnable=6000, slots=16, busy=16))
    )


def test_two_more_workers() -> None:
    found = advice(A_BACKLOG).helps[0]
    assert (found.what, found.helps, found.text) == ("two more workers", True, "5 min")
    assert near(found.seconds, 300)
    assert near(found.instead_of, 600)


def test_two_more_workers_are_too_few() -> None:
    past = minutes(5, written=6000, done=600, runnable=6000, busy=8)
    [found] = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), minutes=past)).helps
    assert (found.helps, found.seconds, found.text) == (False, None, "too few: more is written than they would do")


def test_a_limit_of_the_queue_makes_workers_useless() -> None:
    found = outlook_of(facts(None, A_BACKLOG, workers=(worker(),), total_rate=5.0)).helps[0]
    assert (found.what, found.helps, found.text) == (
        "two more workers",
        False,
        "no use: the queue's limits allow no more",
    )


def test_pausing_the_one_that_floods_is_of_no_use_to_the_others() -> None:
    rows = (Waiter("lumen-labs", held_back=5900), *(Waiter(f"t{number}", in_streams=1) for number in range(38)))
    helps = {each.what: each for each in advice(rows).helps}
    assert not helps["pausing lumen-labs"].helps
    assert helps["pausing lumen-labs"].text == "no use to the others"
    assert helps["a larger weight of lumen-labs"].text == "no use: it has all that the others leave"


def test_pausing_one_helps_another_that_has_much() -> None:
    found = {each.what: each for each in advice((Waiter("one", held_back=4000), Waiter("two", held_back=2000))).helps}
    assert found["pausing one"].helps
    assert found["pausing one"].text == "the others in 3 min instead of 7 min"


def test_no_limit_helps_where_slots_are_free() -> None:
    rows = (Waiter("acme", held_back=188, rate=1.0, allowance=0), Waiter("other", held_back=10))
    found = {each.what: each for each in advice(rows).helps}
    assert (found["no limit of acme"].helps, found["no limit of acme"].text) == (True, "20 s")
    assert near(found["no limit of acme"].instead_of, 188)
    crowded = (*A_BACKLOG, Waiter("third", held_back=3000, rate=3.3, allowance=0))
    found = {each.what: each for each in advice(crowded).helps}
    assert (found["no limit of third"].helps, found["no limit of third"].text) == (
        False, "no use: it would wait as long for its turns",
    )  # fmt: skip


# Whatever a queue says.


def anything(rng: random.Random) -> Facts:
    """Return facts that need not agree."""

    def number() -> int:
        return rng.choice((0, 0, 1, 7, 500, 10**6, 2**53))

    def seconds() -> float:
        return rng.choice((0.0, 0.0, 1e-9, 0.5, 1e6, 1e15))

    rows = tuple(
        Waiter(
            rng.choice(("a", b"\xff", "", "x" * 999)) if at == 0 else f"t{at}",
            in_streams=number(),
            held_back=number(),
            in_flight=number(),
            delayed=number(),
            retrying=number(),
            weight=rng.choice((1, 100)),
            max_in_flight=rng.choice((0, 1)),
            rate=seconds(),
            allowance=rng.choice((None, 0, number())),
            paused_until=rng.choice((None, NOON - 9, NOON + 9, math.inf)),
        )
        for at in range(rng.choice((0, 1, 3, 40)))
    )
    given = stats(
        backlog=number(), delayed=number(), retrying=number(), limited=number(), runnable=number(), held_back=number(),
        oldest_age=rng.choice((None, seconds())), paused_until=rng.choice((None, None, NOON + 5, math.inf)),
        paused_by="x", paused_since=rng.choice((None, NOON - 5, -1e18, 1e18)),
    )  # fmt: skip
    tenants = tuple(
        TenantWork(each.shard_key, number(), seconds(), rng.choice((None, seconds()))) for each in rows[:20]
    )
    workers = tuple(
        worker(
            f"w{at}", state=rng.choice(("working", "gone", "ended")), heard=NOON - rng.choice((-5, 2, 3000)),
            slots=number(), busy=seconds(), done=number(), failed=number(), seconds=seconds(), tenants=tenants,
            others=tuple(number() for _ in range(rng.choice((0, 16, 99)))),
        )
        for at in range(rng.randrange(3))
    )  # fmt: skip
    past = minutes(rng.randrange(6), written=number(), done=number(), runnable=number(), slots=number(), busy=seconds())
    groups = tuple(
        group(rng.choice(("", "t")), rng.choice(("", "E")), recent=number(), first=NOON - seconds()) for _ in "ab"
    )
    return facts(
        given, rows, are_all=rng.random() < 0.5, workers=workers, minutes=past, failures=groups,
        is_read=rng.random() < 0.5,
        last_read=rng.choice((None, NOON - 99)), last_written=rng.choice((None, NOON - seconds())),
        total_in_flight=number(), total_rate=seconds(),
    )  # fmt: skip


def test_whatever_is_told_there_is_an_answer(seed: int) -> None:
    """Numbers that cannot be, and that do not agree: no error, no negative time, nothing that is no number."""
    rng = random.Random(seed)
    for _ in range(500):
        given = anything(rng)
        found = outlook_of(given)
        times = [found.drain_seconds, found.others_served_in, *(each.served_in for each in found.tenants)]
        times += [each.seconds for each in found.helps]
        assert all(each is None or (math.isfinite(each) and each >= 0) for each in times)
        assert sum(found.reasons.values()) == found.waits
        assert (found.drain_seconds is None) == (found.drains not in ("empty", "drains"))
        verdict = verdict_of(given, found)
        assert verdict.sentence.isprintable()
        assert len(verdict.sentence) < 300


def test_many_tenants_and_workers_take_little_time() -> None:
    """What one outlook may look at: 450 shard keys, 400 workers of 20 tenants each."""
    rows = tuple(Waiter(f"t{number}", held_back=number + 1, weight=1 + number % 100) for number in range(450))
    tenants = tuple(TenantWork(f"t{number}", 5, 0.5, 0.1) for number in range(20))
    given = facts(None, rows, workers=tuple(worker(f"w{at}", tenants=tenants) for at in range(400)), are_all=False)
    started = time.process_time()
    found = outlook_of(given)
    assert found.helps
    assert time.process_time() - started < 1


def test_a_pause_of_one_does_not_make_the_others_drain_later() -> None:
    """What is paused goes on in an hour: that is no time in which what waits for turns is served."""
    paused = Waiter("bluefin", held_back=48, allowance=0, paused_until=NOON + 3600)
    found = outlook_of(facts(None, (*A_BACKLOG, paused), workers=(worker(),)))
    assert near(found.drain_seconds, 600)
    [more] = [each for each in found.helps if each.what == "two more workers"]
    assert more.helps
    assert found.tenants[-1].served_in is not None
    assert found.tenants[-1].served_in >= 3600


def test_who_waits_for_a_limit_says_nothing_of_how_long_others_wait() -> None:
    limited = Waiter("cedar", held_back=188, rate=2.0, allowance=0)
    told = replace(worker(), tenants=(TenantWork("cedar", 9, 0.1, 90.0), TenantWork("fern", 9, 0.1, 0.5)))
    assert outlook_of(facts(None, (*A_BACKLOG, limited), workers=(told,))).others_pickup == 0.5


# One that is asked for.


def test_one_that_is_asked_for_is_reckoned_by_itself_among_many() -> None:
    many = tuple(Waiter(f"tenant-{at}", held_back=90) for at in range(200))
    asked = Waiter("small", held_back=2, weight=3)
    known = facts(None, (*many, asked), workers=(worker(),))
    assert "small" not in {each.shard_key for each in outlook_of(known).tenants}
    found = outlook_of(replace(known, asked=("small", "nobody")))
    row = found.tenants[-1]
    assert (row.shard_key, row.waits, row.weight) == ("small", 2, 3)
    assert row.served_in is not None
    assert 0 < row.served_in < 60
    assert (found.weights, found.tenants_waiting) == (203, 201)
    assert near(found.drain_seconds, outlook_of(known).drain_seconds or 0)


def test_what_would_help_the_one_that_is_asked_for() -> None:
    known = facts(None, (*A_BACKLOG, Waiter("third", held_back=1000)), workers=(worker(),))
    assert [each for each in outlook_of(known).helps if each.shard_key == "third"] == []
    [weight] = [each for each in outlook_of(replace(known, asked=("third",))).helps if each.shard_key == "third"]
    assert (weight.what, weight.helps) == ("twice the weight of third", True)
    assert weight.seconds is not None
    assert weight.instead_of is not None
    assert weight.seconds < weight.instead_of


def test_also_a_single_message_that_waits_for_a_limit_is_told_of_one_that_is_asked_for() -> None:
    known = facts(None, (Waiter("few", held_back=2, rate=0.1, allowance=1),), workers=(worker(busy=1.0),))
    assert outlook_of(known).helps == ()
    [lift] = outlook_of(replace(known, asked=("few",))).helps
    assert (lift.what, lift.shard_key) == ("no limit of few", "few")
