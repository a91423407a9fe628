"""Backoff policies: bounds, jitter, no overflow, clear refusals."""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.backoff import Backoff, Constant, Exponential, check_backoff
from shardq.errors import ConfigError
from tests.hostile.values import Silent

counts = st.one_of(st.integers(1, 2000), st.integers(1, 10**400))


def test_without_jitter_delays_double_up_to_the_cap() -> None:
    """Without jitter the delay is base * factor ** (count - 1), at most the cap."""
    policy = Exponential(base=0.5, factor=2, cap=5, jitter="none")

    assert [policy(count, Random(1)) for count in range(1, 7)] == [0.5, 1, 2, 4, 5, 5]


def test_full_jitter_is_uniform_below_the_ceiling() -> None:
    """With full jitter the delays spread evenly from 0 to the ceiling."""
    policy, random = Exponential(base=1, factor=2, cap=60), Random(7)
    delays = [policy(4, random) for _ in range(20_000)]

    assert policy.ceiling(4) == 8
    assert 0 <= min(delays) < 0.01
    assert 7.99 < max(delays) <= 8
    # The mean of 20,000 uniform numbers on [0, 8] deviates by 8 / sqrt(12 * 20,000) = 0.016; 4 deviations.
    assert sum(delays) / len(delays) == pytest.approx(4, abs=0.066)


def test_jitter_comes_from_the_random_given() -> None:
    """The same seed gives the same delays: the policy has no randomness of its own."""
    policy = Exponential()

    assert [policy(9, Random(3)) for _ in range(3)] == [policy(9, Random(3))] * 3


@given(
    counts,
    st.floats(1e-300, 1e9),
    st.floats(1, 1e300),
    st.floats(0, 1e300),
    st.sampled_from(["full", "none"]),
    st.integers(0, 2**32),
)
def test_any_count_stays_within_the_cap(
    count: int, base: float, factor: float, extra: float, jitter: Any, seed: int
) -> None:
    """No count, however huge, overflows or leaves 0 to cap."""
    policy = Exponential(base=base, factor=factor, cap=base + extra, jitter=jitter)
    delay = policy(count, Random(seed))

    assert 0 <= delay <= policy.ceiling(count) <= policy.cap
    assert math.isfinite(delay)


@given(counts)
def test_ceiling_never_falls(count: int) -> None:
    """A later failure never has a lower ceiling."""
    policy = Exponential(base=0.1, factor=1.5, cap=1e9)

    assert policy.ceiling(count) <= policy.ceiling(count + 1)


def test_factor_of_one_stays_at_base() -> None:
    """With factor 1 even a huge count has the base as its ceiling."""
    assert Exponential(base=0.25, factor=1).ceiling(10**400) == 0.25


def test_constant_is_constant() -> None:
    """Constant gives its seconds whatever the count; 0 is allowed."""
    assert {3.0} == {Constant(3)(count, Random()) for count in (1, 2, 10**400)}
    assert Constant(0)(1, Random()) == 0


def test_policies_are_values() -> None:
    """Policies compare by value, hash, and cannot be changed."""
    policies: set[Backoff] = {Exponential(), Exponential(base=0.1), Constant(), Constant(1)}

    assert len(policies) == 2
    with pytest.raises(AttributeError):
        Exponential().base = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"base": 0}, "Constant"),
        ({"base": -1}, "base must be a finite number of at least 0"),
        ({"base": math.nan}, "base"),
        ({"base": True}, "base must be a number, not bool"),
        ({"base": "1"}, "base must be a number, not str"),
        ({"factor": 0.5}, "factor must be a finite number of at least 1"),
        ({"factor": math.inf}, "factor"),
        ({"cap": 0.01}, "cap must be a finite number of at least 0.1"),
        ({"cap": math.inf}, "cap"),
        ({"cap": 10**400}, "cap"),
        ({"cap": 10**5000}, "cap"),
        ({"jitter": "equal"}, "jitter must be"),
        ({"jitter": None}, "jitter must be"),
        ({"jitter": Silent()}, "jitter must be"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], advice: str) -> None:
    """A setting that is out of range, not finite or not a number is a ConfigError that names it."""
    with pytest.raises(ConfigError, match=advice):
        Exponential(**settings)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, "1", None, False])
def test_bad_constants_are_refused(bad: Any) -> None:
    """Constant takes a finite number of at least 0."""
    with pytest.raises(ConfigError, match="seconds"):
        Constant(bad)


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "1", None, -(10**5000)], ids=lambda value: f"{type(value)}")
@pytest.mark.parametrize("policy", [Exponential(), Constant()])
def test_bad_counts_are_refused(policy: Backoff, bad: Any) -> None:
    """The count of failures is an int of at least 1."""
    with pytest.raises(ConfigError, match="count"):
        policy(bad, Random())


class _Policy:
    """A policy of somebody's own, whose `__call__` counts."""

    def __call__(self, count: int, random: Random) -> float:
        return count + random.random()


class _AsyncPolicy:
    async def __call__(self, count: int, random: Random) -> float:
        return count + random.random()


async def _later(count: int, random: Random) -> float:
    return count + random.random()


@pytest.mark.parametrize(
    "policy",
    [Constant(1), Exponential(), _Policy(), lambda count, random: 1, lambda *_: 1, lambda count, random=None, more=0: 1,
     max, partial(lambda scale, count, random: scale, 2)],
)  # fmt: skip
def test_what_can_be_called_as_a_policy_is_one(policy: Any) -> None:
    check_backoff(policy)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (3, "not 3"),
        (None, "not None"),
        (Exponential, "a class: make one"),
        (Constant, "a class: make one"),
        (lambda: 1, "too many positional arguments"),
        (lambda count: 1, "too many positional arguments"),
        (lambda count, random, more: 1, "missing a required argument: 'more'"),
        (lambda *, count, random: 1, "too many positional arguments"),
        (lambda count, random, *, cap: 1, "missing a required.* argument: 'cap'"),
        (_later, "async"),
        (_AsyncPolicy(), "async"),
    ],
)
def test_what_cannot_be_called_as_a_policy_is_refused(policy: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^backoff must be a function .count, random.*{why}"):
        check_backoff(policy)
