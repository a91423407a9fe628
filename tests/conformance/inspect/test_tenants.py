"""Who has what: tenants in any order, and one of them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, TypeVar

import pytest

from shardq import ConfigError, Limits, Queue, QueueMissing
from shardq.model import PeekState
from shardq.ops.inspect import tenants
from shardq.ops.inspect.tenants import ORDERS
from shardq.ops.queue.steps import Batch, Op, Step
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import flood, sound
from tests.conformance.world import World

T = TypeVar("T")


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with a window."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.declare()
    return queue


def test_who_has_most_comes_first(queue: Queue, world: World) -> None:
    for number in range(1, 8):
        flood(queue, f"t{number}", number)
    found = queue.tenants()
    assert [(each.shard_key, each.backlog) for each in found] == [(f"t{n}", n) for n in range(7, 0, -1)]
    assert [each.shard_key for each in queue.tenants(limit=2, start=3)] == ["t4", "t3"]
    assert queue.tenants(start=7) == []
    for each in found:
        assert each.backlog == each.in_streams + each.held_back
        assert (each.in_flight, each.delayed, each.limited, each.weight) == (0, 0, 0, 1)
        assert each.oldest_age is not None
        assert each.streams == queue.state.view.shard(each.shard_key)
    assert sum(each.held_back for each in found) == queue.stats().held_back
    assert sound(queue, world)


@pytest.mark.everywhere
def test_each_number_is_a_full_count(open_queue: OpenQueue, world: World, seed: int) -> None:
    """Of random traffic, whatever the order."""
    rng = random.Random(seed)
    queue = open_queue(streams=8, streams_per_shard=2, window=rng.choice((1, 3)))
    names = [f"tenant-{n}" for n in range(30)]
    waiting: Counter[str] = Counter()
    delayed: Counter[str] = Counter()
    flying: Counter[str] = Counter()
    for _ in range(40):
        name = rng.choice(names)
        if rng.random() < 0.2:
            queue.write("later", shard_key=name, delay=3600)
            delayed[name] += 1
        else:
            count = rng.randint(1, 30)
            flood(queue, name, count)
            waiting[name] += count
        for delivery in queue.read_many(rng.randint(1, 20)):
            waiting[str(delivery.shard_key)] -= 1
            if rng.random() < 0.5:
                delivery.ack()
            else:
                flying[str(delivery.shard_key)] += 1
    for order, counts in (("backlog", waiting), ("in_flight", flying)):
        found = queue.tenants(order, limit=1000)  # type: ignore[arg-type]
        told = [each.backlog if order == "backlog" else each.in_flight for each in found]
        assert told == sorted(told, reverse=True)
        assert {each.shard_key for each in found} >= {name for name, count in counts.items() if count}
        for each in found:
            name = str(each.shard_key)
            assert (each.backlog, each.in_flight, each.delayed) == (waiting[name], flying[name], delayed[name])
    assert {each.shard_key for each in queue.tenants("oldest", limit=1000)} == {n for n in names if waiting[n]}
    assert all(each.held_back for each in queue.tenants("held_back", limit=1000))


def test_who_waits_longest_comes_first(queue: Queue) -> None:
    """By when a message became deliverable, also of one that was given back."""
    for name in ("first", "second", "third"):
        before = queue.stats().time
        queue.write("x", shard_key=name)
        while queue.stats().time - before < 0.005:
            pass
    assert [each.shard_key for each in queue.tenants("oldest")] == ["first", "second", "third"]
    delivery = queue.read()
    while delivery.shard_key != "first":
        delivery.nack()
        delivery = queue.read()
    delivery.nack()
    assert queue.tenants("oldest")[-1].shard_key == "first"
    ages = [each.oldest_age or 0 for each in queue.tenants("oldest")]
    assert ages == sorted(ages, reverse=True)


@pytest.mark.parametrize("parents", [0, 1])
@pytest.mark.parametrize("small", [0, 10_000])
def test_each_age_is_that_of_the_message_that_waits_longest(
    open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch, parents: int, small: int
) -> None:
    """Also of a message behind many others, and of children."""
    monkeypatch.setattr(tenants, "FEW_MESSAGES", small)
    queue = open_queue(streams=2, streams_per_shard=1, window=50, parents=parents)
    since: dict[str, int] = {}
    for number in range(90):
        flood(queue, f"acct-{number % 30}/a", 2)
    queue.nack_many(queue.read_many(7))
    states: list[PeekState] = ["waiting", "held_back"]
    for message in [each for state in states for each in queue.peek(1000, state=state).messages]:
        name = str(message.shard_key).split("/")[0] if parents else str(message.shard_key)
        since[name] = min(since.get(name, 2**60), round((message.since or message.written_at) * 1000))
    assert len(since) == 30
    before = queue.stats().time
    found = queue.tenants("oldest", limit=1000)
    ages = [each.oldest_age or -1.0 for each in found]
    assert ages == sorted(ages, reverse=True)
    found += [queue.tenant(name) for name in since]
    found += queue.tenants(limit=1000) if small else []
    after = queue.stats().time
    for each in found:
        assert each.oldest_age is not None
        begun = since[str(each.shard_key)] / 1000
        assert before - begun - 0.002 <= each.oldest_age <= after - begun + 0.002


def test_scripts_of_a_survey_are_sent_one_by_one(queue: Queue) -> None:
    """Between two that are sent together the server would serve nobody else."""
    for number in range(30):
        flood(queue, f"t{number}", 2)
    steps: list[Step] = []
    for order in ORDERS:
        queue.client.run(noted(tenants.tenants(queue.state, order, 1000, 0), steps))
    queue.client.run(noted(tenants.tenant(queue.state, "t7"), steps))
    assert len(steps) > 30
    assert not [step for step in steps if isinstance(step, Batch)]


def noted(op: Op[T], steps: list[Step]) -> Op[T]:
    """Run an operation, and note its steps."""
    outcome: Any = None
    while True:
        try:
            step = op.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        steps.append(step)
        outcome = yield step


def test_a_survey_makes_few_calls_however_many_tenants_there_are(open_queue: OpenQueue) -> None:
    """One for each thousand accounts, and none for each tenant; for who waits longest it looks at no account."""
    counts: dict[int, dict[str, int]] = {}
    for size in (1000, 4000):
        queue = open_queue(streams=64, streams_per_shard=4, window=1)
        for start in range(0, size, 1000):
            queue.write_many([(b"", f"t{number}") for number in range(start, start + 1000)])
        queue.write_many([(b"", f"t{number}") for number in range(50)])
        counts[size] = {}
        for order in ORDERS:
            steps: list[Step] = []
            queue.client.run(noted(tenants.tenants(queue.state, order, 20, 0), steps))
            counts[size][order] = len(steps)
    for order in ORDERS:
        few, many = (counts[size][order] for size in counts)
        assert many <= 10 if order == "oldest" else many <= 10 + 4000 / tenants.FIELDS_A_CALL, counts
        assert many <= few + (0 if order == "oldest" else 3000 / tenants.FIELDS_A_CALL + 1), counts


@pytest.mark.parametrize("limits", [Limits(rate=0.001, burst=1), Limits(max_in_flight=1)])
def test_who_waits_longest_for_a_limit_is_found(queue: Queue, limits: Limits) -> None:
    """Such a one has no turn, and nothing in the streams."""
    names = [f"t{number}" for number in range(5)]
    queue.set_limits(dict.fromkeys(names, limits))
    for _ in range(3):
        queue.write_many([(b"", name) for name in names])
    found = queue.read_many(20)
    assert len(found) == 5
    if limits.rate:
        queue.ack_many(found)
    assert queue.stats().runnable == 0
    assert sorted(str(each.shard_key) for each in queue.tenants("oldest")) == names
    assert len({each.oldest_age for each in queue.tenants("oldest")}) == 1


def test_who_waits_longest_is_found_among_more_than_one_call_looks_at(queue: Queue) -> None:
    for start in (*range(0, 1500, 250),) * 3:
        queue.write_many([(b"", f"t{number}") for number in range(start, start + 250)])
    for _ in range(3):
        queue.ack_many(queue.read_many(500))
    since: dict[str, int] = {}
    states: list[PeekState] = ["waiting", "held_back"]
    for state in states:
        pages = [queue.peek(1000, state=state)]
        while pages[-1].cursor:
            pages.append(queue.peek(1000, state=state, after=pages[-1].cursor))
        for each in (message for page in pages for message in page.messages):
            name = str(each.shard_key)
            since[name] = min(since.get(name, 2**60), round(each.written_at * 1000))
    assert len(since) == 1500
    first = sorted(since, key=lambda name: (since[name], name))
    found = queue.tenants("oldest", limit=300, start=50)
    assert [each.shard_key for each in found] == first[50:350]
    assert sum(queue.stats().streams) < 500, "more than 1,000 wait for a turn"


def test_limits_pauses_and_weights_are_shown(queue: Queue) -> None:
    flood(queue, "t", 10)
    queue.set_limits({"t": Limits(max_in_flight=2, rate=0.001, burst=4)})
    queue.set_weights({"t": 3})
    assert len(queue.read_many(9)) == 2
    found = queue.tenant("t")
    assert (found.backlog, found.limited, found.in_flight, found.weight) == (8, 8, 2, 3)
    assert (found.limits, found.paused_until) == (Limits(max_in_flight=2, rate=0.001, burst=4), None)
    queue.pause("t", seconds=60)
    assert 50 < (queue.tenant("t").paused_until or 0) - queue.stats().time <= 60


def test_one_tenant_and_its_neighbours(queue: Queue) -> None:
    queue.assign(["a", "b", "c"])
    shards = {name: set(queue.tenant(name).streams) for name in "abc"}
    flood(queue, "b", 5)
    flood(queue, "c", 3)
    near = {each.shard_key: (each.shared, each.backlog) for each in queue.tenant("a", neighbours=True).neighbours}
    shared = {name: len(shards["a"] & shards[name]) for name in "bc"}
    assert near == {name: (shared[name], count) for name, count in (("b", 5), ("c", 3)) if shared[name]}
    nobody = queue.tenant("nobody")
    assert (nobody.backlog, nobody.in_flight, nobody.oldest_age, len(nobody.streams)) == (0, 0, None, 2)


def test_one_tenant_is_looked_at_alone_and_who_floods_is_its_neighbour(open_queue: OpenQueue) -> None:
    """However many others there are, it takes three calls."""
    queue = open_queue(streams=4, streams_per_shard=4, window=1)
    for size in (10, 1000):
        queue.write_many([(b"", f"t{number}") for number in range(size)])
        flood(queue, "flood", 1000)
        for neighbours in (True, False):
            seen: list[Step] = []
            found = queue.client.run(noted(tenants.tenant(queue.state, "t7", neighbours=neighbours), seen))
            assert [each.shard_key for each in found.neighbours[:1]] == ["flood"] * neighbours
            assert len(seen) == 3


def test_a_parent_stands_for_its_children(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1, parents=1)
    for key, count in (("acct-7/a", 6), ("acct-7/b", 5), ("acct-8/c", 3)):
        flood(queue, key, count)
    found = queue.tenants()
    assert [(each.shard_key, each.backlog, each.in_flight) for each in found] == [
        ("acct-7", 11, 0),
        ("acct-8", 3, 0),
    ]
    assert queue.tenant("acct-7").streams == ()
    queue.pause("acct-7")
    held = queue.read_many(9)
    assert {each.shard_key for each in held} == {"acct-8/c"}
    found = queue.tenants("in_flight")
    assert [(each.shard_key, each.in_flight) for each in found] == [("acct-8", 3)]
    assert queue.tenant("acct-7").limited == 11


def test_a_queue_without_a_window_does_not_know_its_tenants(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=0)
    queue.write(1, shard_key="t")
    for call in (queue.tenants, lambda: queue.tenant("t")):
        with pytest.raises(ConfigError, match=r"configure\(window=1\)"):
            call()
    with pytest.raises(QueueMissing):
        world.client().queue("nowhere").tenants()


def test_bad_questions_are_refused(queue: Queue) -> None:
    for bad in ({"order": "size"}, {"limit": 0}, {"limit": 1001}, {"start": -1}):
        with pytest.raises(ConfigError):
            queue.tenants(**bad)
    with pytest.raises(ConfigError):
        queue.tenant("")


def test_looking_changes_nothing(queue: Queue, world: World) -> None:
    for number in range(20):
        flood(queue, f"t{number}", number + 1)
    queue.nack_many(queue.read_many(5))
    queue.read_many(5)
    before = world.dump()
    for order in ORDERS:
        queue.tenants(order)
    queue.tenant("t7")
    assert world.dump() == before


def test_a_shard_key_that_begins_with_a_slash_is_its_own_parent(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=1, parents=1)
    flood(queue, "/a", 3)
    flood(queue, "/b", 2)
    assert {each.shard_key: each.backlog for each in queue.tenants()} == {"/a": 3, "/b": 2}
    assert queue.tenant("/a").backlog == 3
    queue.pause("/a")
    assert {each.shard_key for each in queue.read_many(9)} == {"/b"}
    assert world.census(queue).problems() == []
