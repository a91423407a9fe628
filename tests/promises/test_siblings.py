"""The children of a parent share its time as tenants share that of the queue.

Handlers and tenants live by a simulated clock, on a real server.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shardq import Empty
from shardq.model.settings import Fair
from tests.promises.handlers import Handlers
from tests.promises.test_latecomers import FOREVER, UNSET, about, check_even, mean, named
from tests.servers import Server

pytestmark = pytest.mark.once  # what a server computes does not depend on its kind

HANDLERS = 16
LONG, SHORT = "p/long", "p/short"
WHILE = 100.0
"""Seconds for which is counted who got what."""
EVEN = 0.05
"""By what part a child may get more or less than its share."""
LONGER = pytest.mark.runs_in("test-all")
ABOUT_EVEN = 0.1
"""The same of one among many, and where what others have received is not known exactly."""


def family(server: Server, handlers: int = HANDLERS, *, lease: float = 300.0, fair: Fair = "time") -> Handlers:
    """Handlers of a queue with parents."""
    found = Handlers(server, handlers, lease=lease)
    found.queue.configure(parents=1, fair=fair)
    return found


def shares(got: Counter[str]) -> dict[str, float]:
    return {name: seconds / got.total() for name, seconds in got.items()}


def long_and_short(found: Handlers, weight: int) -> dict[str, float]:
    """Let jobs of 10 s beside jobs of 0.1 s wait at any time, of which the short ones have that weight.

    Return what parts the two should have.
    """
    found.queue.set_weights({SHORT: weight})
    found.flood([LONG], lambda: 10.0)
    found.flood([SHORT], lambda: 0.1)
    return {LONG: 1 / (1 + weight), SHORT: weight / (1 + weight)}


@pytest.mark.parametrize("handlers", [pytest.param(1, marks=LONGER), HANDLERS])
@pytest.mark.parametrize("weight", [pytest.param(1, marks=LONGER), 3])
def test_a_child_with_long_jobs_gets_its_part_of_the_time(server: Server, handlers: int, weight: int) -> None:
    found = family(server, handlers)
    wanted = long_and_short(found, weight)
    found.until(20)
    assert shares(found.during(60 if handlers > 1 else 1600)) == pytest.approx(wanted, rel=EVEN)


@pytest.mark.parametrize("handlers", [1, HANDLERS])
@pytest.mark.parametrize("weight", [1, 3])
def test_children_that_are_fair_in_messages_get_their_part_of_the_messages(
    server: Server, handlers: int, weight: int
) -> None:
    found = family(server, handlers, fair="messages")
    wanted = long_and_short(found, weight)
    found.until(20)
    got = found.during(1600 / handlers)
    assert shares(Counter({LONG: got[LONG] / 10, SHORT: got[SHORT] / 0.1})) == pytest.approx(wanted, rel=EVEN)


def test_a_parent_gets_no_more_time_for_its_many_children(server: Server, rng: random.Random) -> None:
    found = family(server)
    found.flood(named("many/child", 20), about(5, rng))
    found.flood(["few/child"], about(5, rng))
    found.until(50)
    got = found.during(WHILE)
    assert got["few/child"] == pytest.approx(got.total() / 2, rel=EVEN)


def test_children_that_come_late_get_the_same(server: Server, rng: random.Random) -> None:
    """One has all handlers for long, then 20 come, and later 20 more. Another parent's children wait, too."""
    found = family(server)
    found.flood(["p/alone"], about(60, rng))
    found.until(600)
    first, second = named("p/first", 20), named("p/second", 20)
    found.flood(["q/other"], about(2, rng))
    found.flood(first, about(2, rng))
    found.until(found.now + 300)
    found.flood(second, about(2, rng))
    check_even(found.during(600), first + second, ABOUT_EVEN)


def test_a_child_whose_job_does_not_end_gives_those_that_come_late_no_credit(
    server: Server, rng: random.Random
) -> None:
    found = family(server, lease=UNSET)
    found.flood(["p/endless"], lambda: FOREVER)
    first, second = named("p/first", 30), named("p/second", 20)
    found.flood(first, about(2, rng))
    found.until(600)
    found.flood(second, about(2, rng))
    got = found.during(300)
    assert mean(got, second) == pytest.approx(mean(got, first), rel=ABOUT_EVEN)


def test_a_child_that_leaves_after_each_job_and_comes_back_gains_nothing(server: Server) -> None:
    """It has one job of 10 s at a time, so nothing of it waits while that runs."""
    found = family(server, handlers=1)
    found.flood([SHORT], lambda: 0.1)

    def come() -> None:
        found.write(LONG, 10)
        found.at(found.now + 10.5, come)

    come()
    found.until(50)
    assert found.during(WHILE)[LONG] <= WHILE / 2 * (1 + ABOUT_EVEN)


def test_nothing_is_kept_of_children_that_are_done(server: Server, rng: random.Random) -> None:
    """Some of them were ahead as their last message was done. A read forgets a piece of these."""
    found = family(server)
    for name in named("p/child", 100):
        found.write(name, rng.uniform(0.1, 5))
    found.until(1000)
    for _ in range(10):
        with pytest.raises(Empty):
            found.queue.read()
    raw = server.client()
    keys = found.queue.state.keys
    assert [each for each in raw.hkeys(keys.meta) if each[:2] in (b"c:", b"t:")] == []
    assert raw.zrange(keys.delayed, 0, -1) == [b""]
