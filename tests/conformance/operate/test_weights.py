"""Weights in the admission window: a shard key of weight w gets w times the share of one of weight 1.

Turns cost alike here, however long a call takes; weights in time are in test_service_time.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from shardq import ConfigError, Queue, QueueMissing
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import drained, flood, sound
from tests.conformance.world import World


def served(queue: Queue, batch: int, most: int) -> list[str]:
    """The shard keys of the next messages, in the order of their delivery."""
    found: list[str] = []
    while len(found) < most:
        deliveries = queue.read_many(min(batch, most - len(found)))
        assert deliveries
        found += [str(each.shard_key) for each in deliveries]
        assert queue.ack_many(deliveries) == []
    return found


def shares(keys: list[str], weights: Mapping[str, int]) -> dict[str, float]:
    """What each got, in shares of weight 1 of an ideal server."""
    counted = Counter(keys)
    unit = len(keys) / sum(weights.values())
    return {key: counted[key] / unit for key in weights}


@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 7, 100])
@pytest.mark.parametrize(("streams", "tenants"), [(2, 2), (16, 2), (64, 12)])
def test_a_weight_is_a_share(
    open_queue: OpenQueue, world: World, batch: int, streams: int, tenants: int, real: None
) -> None:
    """Near w:1 in single reads and in batches, whether few or many are active, on few streams or many."""
    queue = open_queue(streams=streams, streams_per_shard=min(streams, 4), window=1, fair="messages")
    weights = {f"tenant-{n}": {0: 3, 1: 1, 2: 5}.get(n, 1) for n in range(tenants)}
    queue.read_many(1)  # it must exist
    assert queue.set_weights({key: weights[key] for key in weights}) == {
        key: weight for key, weight in weights.items() if weight > 1
    }
    for key, weight in weights.items():
        flood(queue, key, 160 * weight)
    found = shares(served(queue, batch, 60 * sum(weights.values())), weights)
    for key, weight in weights.items():
        assert 0.7 * weight <= found[key] <= 1.4 * weight, (key, found)
    assert sound(queue, world)
    assert len(drained(queue)) == 100 * sum(weights.values())
    assert sound(queue, world)


def test_a_weight_multiplies_the_cap(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, max_in_flight=2)
    flood(queue, "light", 20)
    queue.set_weights({"heavy": 3})
    flood(queue, "heavy", 20)
    assert Counter(each.shard_key for each in queue.read_many(40)) == {"heavy": 6, "light": 2}
    assert sound(queue, world)


@pytest.mark.once
def test_parents_and_their_children_have_weights(open_queue: OpenQueue, world: World) -> None:
    """The parent's is its share of the queue, a child's its share of the parent."""
    queue = open_queue(streams=16, streams_per_shard=4, window=1, fair="messages", parents=1)
    weights = {"acct-1/a": 2, "acct-1/b": 6, "acct-2/c": 2}
    queue.read_many(1)
    queue.set_weights({"acct-1": 4, "acct-1/b": 3})
    for key in weights:
        flood(queue, key, 400)
    for batch in (1, 20):
        found = shares(served(queue, batch, 200), weights)
        for key, weight in weights.items():
            assert 0.65 * weight <= found[key] <= 1.45 * weight, (batch, found)
        assert sound(queue, world)


@pytest.mark.once
def test_a_heavy_shard_key_keeps_its_order(open_queue: OpenQueue, world: World, rng: random.Random) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1, fair="messages")
    queue.read_many(1)
    queue.set_weights({"heavy": 4})
    for key in ("heavy", "light", "quiet"):
        flood(queue, key, 60)
    order: dict[str, list[int]] = {}
    while batch := queue.read_many(rng.choice((1, 1, 3, 10))):
        for each in batch:
            order.setdefault(str(each.shard_key), []).append(each.payload[1])
        assert queue.ack_many(batch) == []
        assert sound(queue, world)
    early = order["heavy"][:8]  # of the first eight, each has a place of its own in the streams, which take turns
    assert sorted(early) == list(range(8))
    assert order["heavy"][8:] == sorted(order["heavy"][8:])


@pytest.mark.everywhere
def test_weights_are_kept_read_back_and_removed_with_1(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2)
    with pytest.raises(QueueMissing):
        queue.weights()
    queue.read_many(1)
    assert queue.weights() == {}
    assert queue.set_weights({"a": 3, b"\x00\xff": 2, "1:2:x": 7}) == {"a": 3, b"\x00\xff": 2, "1:2:x": 7}
    assert queue.set_weights({"a": 1, "b c": 100}) == {b"\x00\xff": 2, "1:2:x": 7, "b c": 100}
    assert queue.weights() == {b"\x00\xff": 2, "1:2:x": 7, "b c": 100}
    assert queue.set_weights(dict.fromkeys(queue.weights(), 1)) == {}


@pytest.mark.parametrize(
    "bad", [{"a": 0}, {"a": 101}, {"a": 1.5}, {"a": True}, {"": 2}, {3: 2}, {"a" * 1025: 2}, ["a"]]
)
def test_bad_weights_are_refused_whole(open_queue: OpenQueue, bad: Any) -> None:
    queue = open_queue(streams=4, streams_per_shard=2)
    queue.read_many(1)
    with pytest.raises(ConfigError):
        queue.set_weights({"ok": 2, **bad} if isinstance(bad, dict) else bad)
    assert queue.weights() == {}


def test_parents_change_only_while_nothing_counts(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, fair="messages")
    flood(queue, "acct-7/one", 12)
    with pytest.raises(ConfigError, match="drain"):
        queue.configure(parents=1)
    assert queue.configure(parents=0).parents == 0
    assert len(drained(queue)) == 12
    assert queue.configure(parents=1).parents == 1
    flood(queue, "acct-7/one", 12)
    assert sound(queue, world)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize(("streams", "per_shard"), [(64, 6), (16, 2)])
@pytest.mark.parametrize("flipped", [True, False], ids=["flipped", "steady"])
def test_beside_weights_a_quiet_tenant_waits_for_three_rounds_at_most(
    open_queue: OpenQueue, real: None, streams: int, per_shard: int, batch: int, flipped: bool
) -> None:
    """A round is as many messages as the floods have weight; also while weights change hands under load."""
    queue = open_queue(streams=streams, streams_per_shard=per_shard, window=1, fair="messages")
    floods = [f"f{number}" for number in range(10)]
    for key in floods:
        flood(queue, key, 100)
    halves: list[dict[str | bytes, int]] = [
        {key: 20 if (at < 5) == first or not flipped else 1 for at, key in enumerate(floods)} for first in (True, False)
    ]
    written: dict[object, int] = {}
    waits: list[int] = []
    done = 0
    while done < 600 or written:
        if done % 200 < batch:
            queue.set_weights(halves[done // 200 % 2])
        if done < 600 and done % 20 < batch:
            queue.write(None, shard_key=f"quiet-{done}")
            written[f"quiet-{done}"] = done
        some = queue.read_many(batch)
        assert queue.ack_many(some) == []
        done += len(some)
        assert done < 3000, f"never came: {written}"
        waits += [done - written.pop(each.shard_key) for each in some if each.shard_key in written]
        if again := [(None, each.shard_key) for each in some if each.shard_key in floods]:
            queue.write_many(again)
    assert max(waits) <= 3 * sum(halves[0].values())


def test_a_weight_that_became_less_counts_at_once(open_queue: OpenQueue, world: World) -> None:
    """Also in the middle of a turn that began with more."""
    queue = open_queue(streams=1, streams_per_shard=1, window=1, fair="messages")
    queue.read_many(1)
    queue.set_weights({"heavy": 50})
    for key in ("heavy", "light"):
        flood(queue, key, 60)
    assert served(queue, 1, 5).count("heavy") >= 4
    queue.set_weights({"heavy": 2})
    assert served(queue, 1, 12).count("heavy") <= 9  # it has one ahead of before
    assert sound(queue, world)


@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 30])
def test_a_quiet_child_waits_for_one_message_of_each_sibling(open_queue: OpenQueue, world: World, batch: int) -> None:
    """And for what had left the overflow before; not for a second one of those that had their turn just now."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, fair="messages", parents=1)
    siblings = [f"acct/{number}" for number in range(60)]
    queue.write_many([(number, key) for number in range(5) for key in siblings])
    for _ in range(95 // batch):
        assert queue.ack_many(queue.read_many(batch)) == []
    queue.write(None, shard_key="acct/quiet")
    before: Counter[str] = Counter()
    while "acct/quiet" not in before:
        some = queue.read_many(batch)
        before.update(str(each.shard_key) for each in some)
        assert queue.ack_many(some) == []
    assert before.total() <= len(siblings) + 8 + batch
    assert sound(queue, world)
