"""Long random walks of two clients over everything that a queue can do, counted key by key after each step.

A walk is repeated by its seed, which a failure prints with the fewest steps that show it:
SHARDQ_WALK="<seed>|<step>,<step>,..." runs these alone. SHARDQ_WALK_STEPS=50000 walks longer.
"""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from shardq import Client
from tests.conformance.walk.plan import Plan, shrink, walk
from tests.conformance.world import World
from tests.selection import SOAK

STEPS = 60
WALKS = int(os.environ.get("SHARDQ_WALK_STEPS", "20_000" if SOAK else "0")) // (6 * STEPS) or 2


def found_broken(world: World, plan: Plan) -> str:
    """How the walk breaks, in as few steps as can be found; '' if it does not."""
    with closing(world.client()) as one, closing(world.client()) as other:  # a thread for each would be too many
        return _found_broken(world, plan, [one, other])


def _found_broken(world: World, plan: Plan, clients: list[Client]) -> str:
    log, broken = walk(plan, world, clients)
    if broken is None:
        return ""
    print("\n".join([*log, str(broken)]))  # should it be shown by no shorter walk, or time end before that is found
    short = shrink(plan, broken, lambda each: walk(each, world, clients)[1])
    log, broken = walk(short, world, clients) if short != plan else (log, broken)
    steps = "\n".join(log)
    return f"SHARDQ_WALK='{short.seed}|{','.join(map(str, short.steps))}'\n{steps}\n{broken}"


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.once
@pytest.mark.timeout(180 if WALKS == 2 else 0)
@pytest.mark.parametrize("part", range(3))
def test_whatever_happens_the_queue_is_what_the_model_says(world: World, real: None, seed: int, part: int) -> None:
    for number in range(WALKS):
        problem = found_broken(world, Plan.of(f"{seed}.{number}", STEPS))
        assert problem == "", problem


def test_a_walk_on_a_cluster_ends_the_same(world: World, clustered: None, real: None, seed: int) -> None:
    problem = found_broken(world, Plan.of(f"{seed}", STEPS))
    assert problem == "", problem


if "SHARDQ_WALK" in os.environ:

    @pytest.mark.once
    def test_a_walk_is_repeated(world: World, real: None) -> None:
        seed, _, steps = os.environ["SHARDQ_WALK"].partition("|")
        log, broken = walk(Plan(seed, tuple(map(int, steps.split(",")))), world, [world.client(), world.client()])
        assert broken is None, "\n".join([*log, str(broken)])
