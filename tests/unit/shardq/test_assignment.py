"""Assignments: no two shards overlap too much, nobody is moved, and the end of the room is the end."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardq import assignment
from shardq.assignment import Assignment, capacity
from shardq.errors import ConfigError
from shardq.sharding import MAX_SHARD_KEY, overlap, shard

shapes = st.integers(2, 9).flatmap(
    lambda n: st.integers(1, min(n, 4)).flatmap(lambda m: st.tuples(st.just(n), st.just(m), st.integers(0, m - 1)))
)


def filled(made: Assignment, most: int = 200) -> str:
    """Add tenants until there is no room; what was said then, '' if there was room for all."""
    for number in range(most):
        try:
            made.add(f"tenant-{number}")
        except ConfigError as error:
            return str(error)
    return ""


@settings(max_examples=60)
@given(shapes, st.sampled_from([1, assignment.DEALT_TRIES]))
def test_an_assignment_is_full_only_when_nothing_fits(shape: tuple[int, int, int], tries: int) -> None:
    """Any two shards share at most so many streams; when there is no room, no shard at all would fit."""
    n, m, most = shape
    made = Assignment(n, m, max_overlap=most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "DEALT_TRIES", tries)  # with 1, nearly all are found by the search
        told = filled(made)
    shards = [dealt for _, dealt in made.items()]
    assert all(len(set(each)) == m and set(each) <= set(range(n)) for each in shards)
    assert all(overlap(a, b) <= most for a, b in combinations(shards, 2))
    assert len(made) <= capacity(n, m, most)
    if told:
        fits = [each for each in combinations(range(n), m) if all(overlap(each, other) <= most for other in shards)]
        assert fits == []
        assert "Add streams, allow a larger overlap, or remove tenants" in told


@settings(max_examples=40)
@given(shapes)
def test_the_bound_holds_for_the_best_assignment(shape: tuple[int, int, int]) -> None:
    """No assignment, however chosen, is larger than `capacity`."""
    n, m, most = shape
    if n > 7:
        n, most = 7, min(most, m - 1)
    shards = [frozenset(each) for each in combinations(range(n), m)]

    def largest(fits: list[frozenset[int]], steps: list[int]) -> int:
        best = 0
        for at, each in enumerate(fits):
            steps[0] -= 1
            if steps[0] < 0:
                break
            best = max(best, 1 + largest([other for other in fits[at + 1 :] if len(each & other) <= most], steps))
        return best

    assert largest(shards, [3000]) <= capacity(n, m, most)


def test_adding_moves_nobody_and_is_the_same_everywhere() -> None:
    """A tenant keeps its shard through all additions, and the same additions give the same shards."""
    one, two = (Assignment(64, 4, max_overlap=1) for _ in range(2))
    first = {name: one.add(name) for name in (f"tenant-{number}" for number in range(100))}
    filled(one, 200)
    assert {name: one[name] for name in first} == first
    assert {name: one.add(name) for name in first} == first
    filled(two, 200)
    assert list(two.items()) == list(one.items())


def test_most_tenants_keep_the_shard_that_they_are_dealt() -> None:
    """The first candidate is the dealt shard, so that taking up an assignment moves few."""
    made = Assignment(256, 4, max_overlap=2)
    kept = [made.add(f"tenant-{number}") == shard(f"tenant-{number}", 256, 4) for number in range(500)]
    assert kept.count(True) >= 490


def test_a_removed_tenant_makes_room() -> None:
    """After a removal exactly the shards that it stood against fit again."""
    made = Assignment(4, 2, max_overlap=0)
    assert "there cannot be more than 2" in filled(made)
    kept = made["tenant-1"]
    made.remove("tenant-0")
    assert "tenant-0" not in made
    assert not overlap(made.add("another"), kept)
    with pytest.raises(KeyError):
        made.remove("tenant-0")


def test_a_stored_assignment_is_checked() -> None:
    """What was stored is taken up unchanged, and whatever breaks the rules is named."""
    made = Assignment(32, 4, max_overlap=1)
    filled(made, 30)
    stored: dict[str | bytes, tuple[int, ...]] = dict(made.items())
    again = Assignment.of(stored, 32, 4, max_overlap=1)
    assert dict(again.items()) == stored
    assert again.add("one more") == made.add("one more")
    for shards, told in (
        ({"a": (0, 1, 2, 3), "b": (2, 3, 4, 5)}, "'b' shares more than 1"),
        ({"a": (0, 1, 2)}, "'a' must hold 4 different"),
        ({"a": (0, 1, 2, 2)}, "'a' must hold 4 different"),
        ({"a": (0, 1, 2, 32)}, "'a' must hold streams from 0 to 31"),
        ({"a": (0, 1, 2, True)}, "'a' must hold streams from 0 to 31"),
        ({"a": (0, 1, 2, 3), b"a": (4, 5, 6, 7)}, "assigned twice"),
        ({"": (0, 1, 2, 3)}, "must not be empty"),
    ):
        with pytest.raises(ConfigError, match=told):
            Assignment.of(shards, 32, 4, max_overlap=1)  # type: ignore[arg-type] # dict is invariant in its keys


def test_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that takes too long ends with an error, and so does an assignment that grows too large."""
    monkeypatch.setattr(assignment, "SEARCH_STEPS", 10)
    assert "none was found in 10 steps" in filled(Assignment(24, 5, max_overlap=1))
    monkeypatch.setattr(assignment, "MAX_NAMED", 3)
    assert "holds at most 3 tenants" in filled(Assignment(64, 4, max_overlap=1))
    monkeypatch.setattr(assignment, "MAX_NAMED", 100)
    monkeypatch.setattr(assignment, "MAX_TAKEN", 20)
    assert "more than 20 sets of 2 streams" in filled(Assignment(64, 4, max_overlap=1))


def test_the_longest_key_gets_a_shard() -> None:
    made = Assignment(8, 2, max_overlap=0)
    for end in "abcd":
        made.add("x" * (MAX_SHARD_KEY - 1) + end)
    assert len(made) == 4


@pytest.mark.parametrize(("n", "m", "k"), [(8, 2, 2), (8, 2, -1), (0, 1, 0), (8, 2, 1.0)])
def test_bad_numbers_are_refused(n: int, m: int, k: int) -> None:
    with pytest.raises(ConfigError):
        Assignment(n, m, max_overlap=k)
