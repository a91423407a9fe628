"""Who comes later gets as much as who was there before, whatever anybody has received by then.

Handlers and tenants live by a simulated clock, on a real server.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.promises.handlers import Handlers, Length
from tests.promises.ideal import p99
from tests.servers import Server

pytestmark = pytest.mark.once  # what a server computes does not depend on its kind

HANDLERS = 16
JOB = 15.0
"""Seconds that most jobs take, on average."""
LONG = 900.0
HOUR = 3600.0
FOREVER = 10**6
UNSET = FOREVER / 10
"""A lease that is never extended, nor ended by a clock that is set."""
LEASES = {"extended": 30.0, "lost": LONG}
EVEN = 0.05
"""By what part all who came late may get more or less than those who were there before."""
ABOUT_EVEN = 0.1
"""The same where somebody's account says less than he has received; and by what part one may get more or less than
others."""


def about(seconds: float, rng: random.Random) -> Length:
    """Draws lengths that are so many seconds on average."""
    return lambda: seconds * rng.uniform(0.5, 1.5)


def named(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


def check_even(got: Counter[str], tenants: Sequence[str], off: float) -> None:
    """Each of these tenants got the same as the others, but for that part."""
    share = mean(got, tenants)
    assert {each: got[each] for each in tenants} == pytest.approx(dict.fromkeys(tenants, share), rel=off)


def mean(got: Counter[str], tenants: Sequence[str]) -> float:
    return sum(got[each] for each in tenants) / len(tenants)


def test_after_a_batch_at_night_all_who_come_in_the_morning_get_the_same(server: Server, rng: random.Random) -> None:
    """14 tenants come at 8:00, 14 at 8:10. The batch has all handlers until 8:00, with jobs of five minutes.

    A quiet tenant comes after the rush, and waits for a handler as if it were alone with these.
    """
    handlers = Handlers(server, HANDLERS)
    handlers.flood(["night"], about(300, rng))
    handlers.until(LONG)
    first, second = named("first", 14), named("second", 14)
    handlers.flood(first, about(JOB, rng))
    handlers.until(handlers.now + 600)
    handlers.flood(second, about(JOB, rng))
    end = handlers.now + LONG
    handlers.at(handlers.now + 2 * JOB, lambda: handlers.quiet("quiet", 0.01, about(5, rng), end))
    check_even(handlers.during(LONG), first + second, EVEN)
    waits = handlers.waits["quiet"]
    assert statistics.median(waits) <= 0.15 * JOB
    assert p99(waits) <= 0.7 * JOB


@pytest.mark.parametrize(("how", "ahead"), [("done", 0), ("extended", 0), ("lost", 0), ("done", HOUR), ("done", -HOUR)])
@pytest.mark.runs_in("test-all")
def test_all_who_come_after_one_that_was_alone_get_the_same(
    server: Server, rng: random.Random, how: str, ahead: float
) -> None:
    """Its long jobs end, extended or not, or their leases do; 15 tenants have come meanwhile, and 30 do then.

    It goes on with short jobs. The server's clock is set before the 30 come.
    """
    handlers = Handlers(server, HANDLERS, lease=LEASES.get(how, UNSET))
    handlers.flood(["alone"], lambda: LONG if handlers.now < LONG / 2 else JOB / 3)
    handlers.lost = {"alone"} if how == "lost" else set()
    handlers.until(LONG / 2)
    first, second = named("first", 15), named("second", 30)
    handlers.flood(first, about(JOB / 3, rng))
    handlers.until(LONG + 30)
    handlers.clock.ahead = ahead
    handlers.flood(second, about(JOB / 3, rng))
    got = handlers.during(600)
    check_even(got, first + second, ABOUT_EVEN)
    assert mean(got, second) == pytest.approx(mean(got, first), rel=EVEN)


@pytest.mark.parametrize(("lease", "ahead"), [(300.0, 0), (UNSET, 0), (UNSET, HOUR), (UNSET, -HOUR)])
@pytest.mark.runs_in("test-all")
def test_one_whose_job_does_not_end_gives_nobody_credit(
    server: Server, rng: random.Random, lease: float, ahead: float
) -> None:
    """It waits with little service, since what it has in flight keeps it from more. 30 tenants come late beside 40."""
    handlers = Handlers(server, HANDLERS, lease=lease)
    handlers.flood(["endless"], lambda: FOREVER)
    first, second = named("first", 40), named("second", 30)
    handlers.flood(first, about(JOB, rng))
    handlers.until(100)
    handlers.clock.ahead = ahead
    handlers.until(1000)
    handlers.flood(second, about(JOB, rng))
    got = handlers.during(600)
    assert mean(got, second) == pytest.approx(mean(got, first), rel=ABOUT_EVEN)


@pytest.mark.parametrize("told", [0.4, 0.01])
@pytest.mark.runs_in("test-all")
def test_one_that_tells_a_part_of_its_costs_gives_nobody_credit(
    server: Server, rng: random.Random, told: float
) -> None:
    handlers = Handlers(server, HANDLERS)
    first, second = named("first", 20), named("second", 30)
    handlers.told[first[0]] = told
    handlers.flood(first, about(JOB / 3, rng))
    handlers.until(1000)
    handlers.flood(second, about(JOB, rng))
    got = handlers.during(600)
    assert mean(got, second) == pytest.approx(mean(got, first[1:]), rel=ABOUT_EVEN)


@pytest.mark.runs_in("test-all")
def test_a_job_that_began_while_nobody_waited_is_not_free(server: Server, rng: random.Random) -> None:
    """There is one handler. It works 350 s more on that job when nine others come, which is more than a fair share."""
    lease = 30.0
    handlers = Handlers(server, 1, lease=lease)
    handlers.write("early", 600)
    handlers.until(1)
    for _ in range(400):
        handlers.write("early", 2)
    handlers.until(250)
    handlers.flood(named("late", 9), about(2, rng))
    assert handlers.during(1600)["early"] <= 350 + lease / 3 + 2
