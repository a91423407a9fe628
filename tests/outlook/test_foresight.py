"""What a change would do to those that wait, reckoned before it is made."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shardq.model.waiter import Waiter
from shardq.outlook.foresight import Effect, Foresight
from tests.outlook.given import NOON, facts, minutes, stats, worker

BUSY: dict[str, Any] = {"workers": (worker(),), "minutes": minutes(5, done=600, busy=8)}
"""Ten messages a second are done."""
LARGE, SMALL = Waiter("acme", held_back=3000), Waiter("other", held_back=100)


def test_while_one_is_paused_the_others_are_served_sooner() -> None:
    effect = Foresight(facts(None, (LARGE, SMALL), **BUSY)).without("acme")
    assert math.isclose(effect.others_before or 0, 20, rel_tol=0.05)
    assert math.isclose(effect.others_after or 0, 10, rel_tol=0.05)
    assert effect.on_others() == "The messages of the others are served in 10 s instead of 20 s."


def test_what_goes_on_makes_the_others_wait_longer() -> None:
    paused = Waiter("acme", held_back=3000, paused_until=math.inf, allowance=0)
    effect = Foresight(facts(None, (paused, SMALL), **BUSY)).resumed("acme")
    assert math.isclose(effect.own_after or 0, 310, rel_tol=0.05)
    assert effect.on_others() == "The others wait 10 s longer: their messages are served in 20 s instead of 10 s."


def test_a_limit_leaves_time_to_the_others_and_lasts_longer() -> None:
    sight = Foresight(facts(None, (LARGE, SMALL), **BUSY))
    effect = sight.limited("acme", rate=1, max_in_flight=None)
    assert math.isclose(effect.own_after or 0, 3000, rel_tol=0.05)
    assert math.isclose(effect.others_after or 0, 100 / 9, rel_tol=0.05)
    assert sight.limited("acme", rate=None, max_in_flight=None).longer == 0


def test_a_weight_takes_time_from_the_others() -> None:
    effect = Foresight(facts(None, (LARGE, SMALL), **BUSY)).weighed("acme", 3)
    assert math.isclose(effect.others_after or 0, 40, rel_tol=0.05)
    assert effect.on_others() == "The others wait 20 s longer: their messages are served in 40 s instead of 20 s."


def test_what_is_added_is_waited_for_at_most_as_long_as_it_takes() -> None:
    sight = Foresight(facts(None, (SMALL,), **BUSY))
    assert math.isclose(sight.added(30, None).longer or 0, 3, rel_tol=0.05)
    text = sight.added(30, None).on_others(at_most=True)
    assert text == "The others wait at most 3.0 s longer: their messages are served in 13 s instead of 10 s."
    slowly = sight.added(3000, 2.0)
    assert math.isclose(slowly.longer or 0, 100 / 8 - 10, rel_tol=0.05)
    assert sight.added(1, None).on_others() == "Nobody else waits longer."


def test_of_one_that_is_too_small_to_be_looked_at_nothing_changes() -> None:
    sight = Foresight(facts(None, (LARGE, SMALL), **BUSY))
    for effect in (sight.weighed("nobody", 3), sight.resumed("nobody"), sight.without("nobody")):
        assert effect.longer == 0
        assert effect.own_after is None


def test_the_end_of_a_pause_of_all_serves_all() -> None:
    rows = (LARGE, SMALL)
    given = stats(backlog=3100, runnable=0, paused_until=math.inf)
    sight = Foresight(facts(given, rows, **BUSY))
    assert sight.without("acme") == Effect(is_known=False)  # nobody is served as it stands
    assert math.isclose(sight.all_resumed().own_after or 0, 310, rel_tol=0.05)


@pytest.mark.parametrize("known", [{}, {"is_read": True}, {"workers": (worker(state="gone", heard=NOON - 60),)}])
def test_where_nobody_knows_how_fast_it_is_served_nothing_is_said(known: dict[str, Any]) -> None:
    sight = Foresight(facts(None, (LARGE, SMALL), **known))
    effects = [
        sight.without("acme"), sight.resumed("acme"), sight.limited("acme", rate=1, max_in_flight=None),
        sight.weighed("acme", 2), sight.added(100, None), sight.all_resumed(),
    ]  # fmt: skip
    assert {effect.on_others() for effect in effects} == {""}
    assert {effect.longer for effect in effects} == {None}


def test_a_queue_of_which_nothing_waits() -> None:
    sight = Foresight(facts(**BUSY))
    assert sight.without("acme").on_others() == "Nobody else waits longer."
    assert sight.spare == sight.capacity == pytest.approx(10, rel=0.05)
