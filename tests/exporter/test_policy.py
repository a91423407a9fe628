"""How many workers are wanted, by load, age and drain time; and that the value is above 0 where anybody is needed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.exporter.policy import METRICS, Metric, Numbers, Policy, numbers_of
from shardq.model.outlook import Outlook
from shardq.outlook.outlook import outlook_of
from tests.outlook.given import facts, minutes, stats, worker

QUIET = Numbers(0, 0, 0, None, None, 0.0, 0, 0)
WAITING = QUIET._replace(runnable=100, oldest_age=12.0, workers=4, slots=40)


def wanted(metric: Metric, target: float, numbers: Numbers, **known: Any) -> int:
    return Policy(metric, target).wanted(numbers._replace(**known))


# Whether anybody is needed.


@pytest.mark.parametrize("metric", METRICS)
def test_one_who_is_busy_keeps_the_last_worker_whatever_the_activation(metric: Metric) -> None:
    policy = Policy(metric, 10, activation=1000)
    assert policy.is_active(QUIET._replace(in_flight=1))
    assert policy.wanted(QUIET._replace(in_flight=1)) == 1
    assert not policy.is_active(QUIET)
    assert policy.wanted(QUIET) == 0


@pytest.mark.parametrize("metric", METRICS)
def test_what_is_due_within_the_lead_starts_one_worker_that_stays_when_it_is_due(metric: Metric) -> None:
    policy = Policy(metric, 10, lead=20)
    assert not policy.is_active(QUIET._replace(next_due=20.1, due_soon=5))
    for workers in (0, 1, 5):
        soon = QUIET._replace(next_due=20.0, due_soon=5, workers=workers, slots=workers * 8)
        assert policy.wanted(soon) == 1
        assert policy.wanted(soon._replace(next_due=None, due_soon=0, runnable=5, oldest_age=0.0)) == 1


def test_the_first_worker_starts_if_more_than_the_activation_waits() -> None:
    for metric in ("load", "drain"):
        policy = Policy(metric, 10, activation=5)
        assert [policy.is_active(QUIET._replace(runnable=number)) for number in (5, 6)] == [False, True]
        soon = QUIET._replace(runnable=3, next_due=1.0, due_soon=2)
        assert [policy.is_active(soon._replace(due_soon=number)) for number in (2, 3)] == [False, True]
    policy = Policy("age", 60, activation=30)
    assert [policy.is_active(WAITING._replace(oldest_age=age)) for age in (None, 30.0, 31.0)] == [False, False, True]
    assert not policy.is_active(QUIET._replace(next_due=0.0, due_soon=1))


# How many.


def test_by_load_each_worker_has_as_many_messages_as_the_target_says() -> None:
    assert wanted("load", 10, WAITING) == 10
    assert wanted("load", 10, WAITING, in_flight=1) == 11
    assert wanted("load", 0.3, QUIET, runnable=3) == 10  # as Kubernetes reckons, in thousandths


def test_by_age_there_are_as_many_times_the_workers_as_it_is_the_target_and_at_most_twice() -> None:
    assert wanted("age", 10, WAITING) == 5  # 4 * 12 / 10
    assert wanted("age", 1, WAITING) == 8
    assert wanted("age", 24, WAITING) == 2
    assert wanted("age", 24, WAITING, in_flight=35) == 4  # of 40 slots
    assert wanted("age", 1, WAITING, runnable=30) == 3  # no more than have something to do


def test_by_drain_time_what_waits_and_what_is_written_meanwhile_is_done_within_the_target() -> None:
    known = WAITING._replace(runnable=6000, per_worker=2.0, written_rate=5.0)
    assert wanted("drain", 60, known) == 53  # 6,000 / (2 * 60) and 5 / 2
    assert wanted("drain", 600, known) == 8
    assert wanted("drain", 600, known, in_flight=100) == 10
    assert wanted("drain", 60, known, runnable=0, in_flight=1, done_rate=5.0) == 3  # short jobs come and go
    assert wanted("drain", 0.1, known, runnable=50) == 5


def test_by_drain_time_what_is_written_and_cannot_be_delivered_starts_nobody() -> None:
    """A flood that a limit, a pause or a delay holds back: 200 a second are written, and 1.3 are done."""
    held = QUIET._replace(workers=1, slots=1, per_worker=1.3, written_rate=200.0, done_rate=1.3)
    assert wanted("drain", 60, held, in_flight=1) == 1
    assert wanted("drain", 60, held, in_flight=1, runnable=4) == 5  # one each for what can be delivered, and no more
    assert wanted("drain", 60, held, in_flight=1, done_rate=None) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_a_pause_starts_nobody_however_long_something_waits(metric: Metric) -> None:
    for activation in (0.0, 2.0):
        policy = Policy(metric, 30, activation=activation)
        assert policy.wanted(QUIET._replace(oldest_age=500.0)) == 0
        assert policy.wanted(QUIET._replace(oldest_age=500.0, in_flight=1, workers=1, slots=1)) == 1


@pytest.mark.parametrize("target", [0.001, 0.25, 0.5, 1, 10])
@pytest.mark.parametrize("metric", METRICS)
def test_what_is_due_soon_starts_one_worker_by_each_target(metric: Metric, target: float) -> None:
    assert wanted(metric, target, QUIET, next_due=5.0, due_soon=7) == 1


@pytest.mark.parametrize("metric", ["age", "drain"])
def test_what_dead_workers_had_starts_as_many_as_had_it(metric: Metric) -> None:
    """Ten workers of 64 slots died."""
    died = QUIET._replace(in_flight=640, per_worker=50.0, written_rate=10.0, slots_each=64.0)
    assert wanted(metric, 60, died) == 10
    assert wanted(metric, 60, died, per_worker=None) == 10


def test_by_drain_time_there_are_twice_as_many_while_nobody_knows_the_rate() -> None:
    assert wanted("drain", 60, WAITING, runnable=6000) == 8
    assert wanted("drain", 60, WAITING, runnable=50) == 5
    assert wanted("drain", 60, WAITING, runnable=50, in_flight=40) == 8


@pytest.mark.parametrize("metric", ["age", "drain"])
def test_the_first_worker_is_one_if_nobody_knows_what_one_does(metric: Metric) -> None:
    for workers in (0, None):
        assert wanted(metric, 10, WAITING, workers=workers, slots=workers) == 1
        assert (
            wanted(metric, 10, WAITING, workers=workers, slots=workers, in_flight=3) == 3
        )  # by readers of other kinds


def test_what_one_did_is_known_also_while_none_works() -> None:
    assert wanted("drain", 10, WAITING, workers=0, slots=0, per_worker=2.0, written_rate=0.0) == 5


def test_least_and_most() -> None:
    assert Policy("load", 1).wanted(WAITING, most=20) == 20
    assert Policy("load", 1).wanted(QUIET, least=2) == 2


# What holds for all numbers.

counts = st.integers(0, 2**53)
seconds = st.floats(0, 1e12)
rates = st.none() | st.floats(1e-300, 1e300)
anything = st.builds(
    Numbers,
    runnable=counts,
    in_flight=counts,
    due_soon=counts,
    next_due=st.none() | seconds,
    oldest_age=st.none() | seconds,
    drain_time=st.none() | seconds,
    workers=st.none() | counts,
    slots=st.none() | counts,
    per_worker=rates,
    written_rate=rates,
    done_rate=rates,
    slots_each=rates,
)
policies = st.builds(
    Policy,
    metric=st.sampled_from(METRICS),
    target=st.integers(1, 10**12).map(lambda thousandths: thousandths / 1000),
    lead=st.floats(0, 86_400),
    activation=st.just(0.0) | st.floats(0, 1e9),
)


@given(anything, policies)
def test_the_value_is_a_number_above_0_exactly_if_the_queue_is_active(numbers: Numbers, policy: Policy) -> None:
    value = policy.value(numbers)
    assert math.isfinite(value)
    assert (value >= 0.001) == policy.is_active(numbers)
    assert (value == 0) == (policy.wanted(numbers) == 0)


@given(anything, policies)
def test_no_worker_is_taken_away_that_is_busy(numbers: Numbers, policy: Policy) -> None:
    workers, slots = numbers.workers, numbers.slots
    if policy.metric == "load" or not workers or not slots or slots < workers:
        return
    busy = min(numbers.in_flight, slots)
    assert policy.wanted(numbers) >= min(10**6, math.floor(busy * workers / slots * 0.999_999))


# From what a queue says.


def counted(**known: Any) -> Numbers:
    return numbers_of(stats(time=1000.0, **known), None)


def test_what_is_delayed_is_due_in_seconds_from_now() -> None:
    assert counted(delayed=1, next_due=1012.5).next_due == 12.5
    assert counted(delayed=1, next_due=999.0).next_due == 0.0
    assert counted().next_due is None


def test_a_pause_of_the_whole_queue_starts_nobody_before_it_ends() -> None:
    delayed = {"delayed": 1, "next_due": 1010.0}
    assert counted(**delayed, paused_until=1060.0).next_due == 60.0
    assert counted(**delayed, paused_until=1005.0).next_due == 10.0
    assert counted(**delayed, paused_until=math.inf).next_due is None
    assert counted(backlog=3, paused_until=1060.0).next_due == 60.0
    assert counted(backlog=3, **delayed, paused_until=1005.0).next_due == 5.0
    assert counted(backlog=3, paused_until=math.inf).next_due is None
    assert counted(paused_until=1060.0).next_due is None


def test_what_a_worker_does_is_the_capacity_by_the_workers() -> None:
    known = facts(None, workers=(worker(), worker()), minutes=minutes(5, written=150, done=600, busy=8))
    found: Outlook = outlook_of(known)
    numbers = numbers_of(stats(), found)
    assert (numbers.workers, numbers.slots) == (found.workers, found.slots) == (2, found.slots)
    assert found.capacity is not None
    assert numbers.per_worker == found.capacity / 2
    assert numbers.written_rate == found.written_rate == 2.5
    assert numbers.done_rate == found.rate
    assert numbers.slots_each == found.slots / 2
    assert numbers_of(stats(), outlook_of(facts(None))).per_worker is None
