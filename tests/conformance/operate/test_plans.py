"""Plans: limits by name that many tenants share, which change for all of them at once."""

from __future__ import annotations

import pytest

from shardq import ConfigError, Limits, Plan, Queue, QueueMissing
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import flood, sound
from tests.conformance.read.test_service_time import MOST_JOBS, served
from tests.conformance.world import World


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=4, streams_per_shard=2)
    queue.declare()
    return queue


@pytest.mark.everywhere
def test_a_plan_limits_all_who_are_on_it_and_nobody_else(queue: Queue, world: World) -> None:
    queue.set_plan("gold", max_in_flight=2)
    queue.set_limits({"a": "gold", "b": "gold"})
    for key in ("a", "b", "c"):
        flood(queue, key, 5)
    assert [each.shard_key for each in queue.read_many(100)].count("c") == 5
    assert (queue.tenant("a").in_flight, queue.tenant("b").in_flight) == (2, 2)
    assert queue.limits() == {"a": "gold", "b": "gold"}
    assert queue.plans() == {"gold": Plan(max_in_flight=2, tenants=2)}
    assert sound(queue, world)


def test_a_plan_that_changes_is_in_force_with_the_next_call(queue: Queue, world: World) -> None:
    queue.set_plan("gold", max_in_flight=1)
    queue.set_limits(dict.fromkeys(map(str, range(400)), "gold"))  # more than one call looks at
    for key in range(400):
        flood(queue, str(key), 3)
    assert len(queue.read_many(1000)) == 400
    assert queue.read_many(1000) == []
    queue.set_plan("gold", max_in_flight=2)
    found = 0
    while batch := queue.read_many(1000):
        found += len(batch)
    assert found == 400
    queue.set_plan("gold", max_in_flight=0)
    while batch := queue.read_many(1000):
        found += len(batch)
    assert found == 800
    assert sound(queue, world)


def test_a_plan_that_becomes_stricter_blocks_at_once(queue: Queue) -> None:
    queue.set_plan("gold")
    queue.set_limits({"a": "gold"})
    flood(queue, "a", 5)
    assert len(queue.read_many(2)) == 2
    queue.set_plan("gold", max_in_flight=2)
    assert queue.read_many(5) == []
    told = queue.tenant("a")
    assert (told.plan, told.limits, told.limited) == ("gold", Limits(max_in_flight=2), 3)


def test_a_plans_weight_is_that_of_who_has_none_of_its_own(queue: Queue) -> None:
    queue.set_plan("gold", weight=3)
    queue.set_limits({"a": "gold"})
    for key in ("a", "b"):
        flood(queue, key, 60)
    assert (queue.tenant("a").weight, queue.weights()) == (3, {})
    found = served(queue, {"a": 2.0, "b": 2.0}, 60)
    assert abs(found["a"] / 3 - found["b"]) <= MOST_JOBS * 2.0
    queue.set_weights({"a": 7})
    assert queue.tenant("a").weight == 7


def test_a_rate_and_a_burst_of_a_plan(queue: Queue) -> None:
    queue.set_plan("trial", rate=0.001, burst=2)
    queue.set_limits({"a": "trial"})
    flood(queue, "a", 5)
    assert len(queue.read_many(5)) == 2
    assert queue.plans()["trial"] == Plan(rate=0.001, burst=2, tenants=1)


def test_own_limits_take_the_place_of_a_plan_and_the_other_way_round(queue: Queue) -> None:
    queue.set_plan("gold", max_in_flight=1)
    queue.set_limits({"a": "gold"})
    queue.pause("a")
    assert queue.limits() == {"a": "gold"}
    queue.resume("a")
    queue.set_limits({"a": Limits(rate=5)})
    assert (queue.limits(), queue.plans()["gold"].tenants) == ({"a": Limits(rate=5)}, 0)
    queue.set_limits({"a": "gold"})
    assert (queue.tenant("a").limits, queue.plans()["gold"].tenants) == (Limits(max_in_flight=1), 1)
    queue.set_limits({"a": Limits()})
    assert (queue.limits(), queue.plans()["gold"].tenants) == ({}, 0)


def test_what_cannot_be_is_refused_with_what_to_do(queue: Queue, open_queue: OpenQueue) -> None:
    with pytest.raises(ConfigError, match="no plan 'gold': set_plan makes it"):
        queue.set_limits({"a": Limits(rate=1), "b": "gold"})
    assert queue.limits() == {}
    queue.set_plan("gold")
    queue.set_limits({"a": "gold", "b": "gold"})
    with pytest.raises(ConfigError, match=r"2 tenants of queue .* are on plan 'gold': give them other"):
        queue.delete_plan("gold")
    with pytest.raises(ConfigError, match="no plan 'silver'"):
        queue.delete_plan("silver")
    queue.set_limits({"a": Limits(), "b": Limits()})
    queue.delete_plan("gold")
    assert queue.plans() == {}
    for name in ("", "a b", "a,b", "x" * 65, "é"):
        with pytest.raises(ConfigError, match="the name of a plan"):
            queue.set_plan(name)
    with pytest.raises(ConfigError, match="weight"):
        queue.set_plan("gold", weight=0)
    with pytest.raises(ConfigError, match="rate"):
        queue.set_plan("gold", rate=-1)


def test_there_are_64_plans_at_most(queue: Queue) -> None:
    for number in range(64):
        queue.set_plan(f"plan-{number}", rate=number + 1)
    with pytest.raises(ConfigError, match="64 plans"):
        queue.set_plan("one-more")
    queue.set_plan("plan-0", rate=99)
    assert queue.plans()["plan-0"].rate == 99


def test_plans_need_a_window_and_a_queue(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, window=0)
    with pytest.raises(QueueMissing):
        queue.plans()
    queue.declare()
    with pytest.raises(ConfigError, match="window"):
        queue.set_plan("gold")


def test_a_parent_is_on_a_plan_with_all_its_children(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, parents=1)
    queue.declare()
    queue.set_plan("gold", max_in_flight=2)
    queue.set_limits({"p": "gold"})
    for key in ("p/1", "p/2", "q/1"):
        flood(queue, key, 4)
    assert sorted(str(each.shard_key)[0] for each in queue.read_many(20)) == ["p"] * 2 + ["q"] * 4
    with pytest.raises(ConfigError, match="a parent's"):
        queue.set_limits({"p/1": "gold"})
