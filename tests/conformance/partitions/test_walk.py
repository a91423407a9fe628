"""A random walk over a queue of three partitions: each is sound after each step, and what is told is their sum."""

from __future__ import annotations

import random

import pytest

from tests.conformance.conftest import OpenQueue
from tests.conformance.random_ops import RandomOps
from tests.conformance.world import World

STEPS = 80


@pytest.mark.everywhere
@pytest.mark.runs_in("test-all")
def test_whatever_happens_sums_are_a_full_count_and_nothing_is_lost(
    open_queue: OpenQueue, world: World, real: None, rng: random.Random
) -> None:
    """Another client, which was told nothing, sees the same."""
    world.partitions = 3
    ops = RandomOps(open_queue, world, rng)
    other = world.client().queue(ops.queue.name)
    other.read_many(1, visibility_timeout=5000.0)
    for _ in range(STEPS):
        ops.step()
        seen = world.census(ops.queue)
        assert seen.problems() == [], ops.log[-8:]
        stats = other.stats()
        # What was cancelled in flight counts until its lease is over.
        here = len(seen.messages) - sum(1 for each in seen.cancelled if seen.leased[each] <= seen.now)
        told = (stats.dead, stats.in_flight + stats.backlog + stats.delayed, other.len())
        assert told == (seen.dead, here, here - stats.delayed), ops.log[-8:]
    assert ops.remaining() == set()
    assert world.census(ops.queue).problems() == []
