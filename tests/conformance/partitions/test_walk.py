"""A random walk over a queue of several partitions: each is sound after each step, and what is told is their sum.

SHARDQ_WALK_STEPS=50000 walks longer, and SHARDQ_SEED repeats a walk.
"""

from __future__ import annotations

import inspect
import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardq.partitions import resize
from shardq.partitions.shapes import SHAPES
from tests.conformance.conftest import OpenQueue
from tests.conformance.partitions.moves import PartedOps
from tests.conformance.walk.audit import self_contradictions
from tests.conformance.walk.ledger import look
from tests.conformance.world import World
from tests.selection import SOAK

STEPS = 80
WALKS = int(os.environ.get("SHARDQ_WALK_STEPS", "20_000" if SOAK else "0")) // STEPS or 1


@pytest.mark.everywhere
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(120 if WALKS == 1 else 0)
def test_whatever_happens_sums_are_a_full_count_and_nothing_is_lost(
    open_queue: OpenQueue, world: World, real: None, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client, which was told nothing, writes each key once, whatever it knows of the partitions."""
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)
    world.partitions = 3
    for _ in range(WALKS):
        name = open_queue(create=False).name
        ops = PartedOps(open_queue, world, rng, world.client().queue(name))
        with told(ops):
            for _ in range(STEPS):
                ops.step()
                check(ops, world)
            assert ops.remaining() == set()
        assert world.census(ops.queue).problems() == []
        world.raw.flushall()


@pytest.mark.once
def test_each_verb_of_a_queue_is_in_a_move(open_queue: OpenQueue, world: World, rng: random.Random) -> None:
    """And of its schedules."""
    world.partitions = 3
    ops = PartedOps(open_queue, world, rng, world.client().queue(open_queue(create=False).name))
    every: list[Any] = [*ops.moves(), ops._store, ops.listed, ops.letters]
    moves = "".join(map(inspect.getsource, every))
    called = {
        *(f"Queue.{name}" for name in re.findall(r"(?:queue|_other)\.(\w+)\(", moves)),
        *(f"Schedules.{name}" for name in re.findall(r"queue\.schedules\.(\w+)\(", moves)),
    }
    assert {name for name in SHAPES if name.startswith(("Queue.", "Schedules."))} - called == set()


@contextmanager
def told(ops: PartedOps) -> Iterator[None]:
    """If this fails, tell what was done."""
    try:
        yield
    except BaseException:
        print("\n".join(ops.log))
        raise


def check(ops: PartedOps, world: World) -> None:
    """Each partition is sound, key by key, and what is told is a full count."""
    queue = ops.queue
    for state in queue.state.parts.states:
        assert [*self_contradictions(look(world.node(state.keys.meta), state.keys), state.keys)] == [], ops.log[-8:]
    seen = world.census(queue)
    assert seen.problems() == [], ops.log[-8:]
    stats = queue.stats()
    # What was cancelled in flight counts until its lease is over.
    here = len(seen.messages) - sum(1 for each in seen.cancelled if seen.leased[each] <= seen.now)
    told = (stats.dead, stats.in_flight + stats.backlog + stats.delayed, queue.len())
    assert told == (seen.dead, here, here - stats.delayed), ops.log[-8:]
