"""Dead letters end: by their ids, by a filter, by age, or to make room for others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shardq import ConfigError, DeadLetter, Queue, QueueMissing, Where
from tests.conformance.conftest import OpenQueue
from tests.conformance.replay import Replay
from tests.conformance.world import World
from tests.waiting import eventually


def killed(queue: Queue, count: int, shard_key: str = "t", reason: str = "poison") -> list[str]:
    """Write messages and reject them. Their ids, in the order of their deaths."""
    ids = []
    for number in range(count):
        queue.write(number, shard_key=shard_key)
        delivery = queue.read()
        delivery.reject(reason)
        ids.append(delivery.message_id)
    return ids


def left(queue: Queue) -> list[str]:
    """The ids of the dead letters."""
    return [each.message_id for each in queue.dead(1000)]


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with a journal."""
    queue = open_queue(streams=4, streams_per_shard=2, journal=100_000)
    queue.declare()
    return queue


@pytest.fixture
def replay(queue: Queue) -> Replay:
    """What its journal says."""
    return Replay(queue)


def test_a_cancel_says_that_a_message_is_dead(queue: Queue) -> None:
    (dead,) = killed(queue, 1)
    assert queue.cancel(dead) == "dead"
    status = queue.status(dead)
    assert (status.state, status.reason, status.deliveries, status.shard_key) == ("dead", "poison", 1, "t")
    assert status.since is not None
    assert left(queue) == [dead]
    queue.redrive(queue.dead())
    assert queue.status(dead).state in ("waiting", "held_back")
    queue.read().reject("again")
    assert (queue.cancel(dead), queue.status(dead).reason, queue.status(dead).deliveries) == ("dead", "again", 2)


@pytest.mark.everywhere
def test_dead_letters_are_deleted_by_their_ids(queue: Queue, replay: Replay) -> None:
    ids = killed(queue, 5)
    alive = queue.write("alive", shard_key="t")
    assert queue.delete_dead(ids=[ids[1], ids[3], alive]) == 2
    assert queue.delete_dead(ids=[ids[1]]) == 0
    assert left(queue) == [ids[0], ids[2], ids[4]]
    assert queue.delete_dead(queue.dead()[:1]) == 1
    assert left(queue) == [ids[2], ids[4]]
    assert queue.status(ids[1]).state == "unknown"
    stats = queue.stats()
    assert (stats.dead, stats.dead_deleted, stats.backlog) == (2, 3, 1)
    replay.follow()
    assert [each.message_id for each in replay.events if each.kind == "deleted"] == [ids[1], ids[3], ids[0]]


def test_dead_letters_are_deleted_by_what_they_are(queue: Queue) -> None:
    ids = {
        name: killed(queue, 3, shard_key, reason)
        for name, shard_key, reason in (
            ("a", "a", "Timeout: 3 s"),
            ("b", "b", "Timeout: 9 s"),
            ("c", "b", "ValueError"),
        )
    }
    assert queue.delete_dead(Where(tenant="b", reason="Timeout"), limit=2).wait().done == 2
    assert left(queue) == [*ids["a"], ids["b"][2], *ids["c"]]
    assert queue.delete_dead(Where(error="3 s")).wait().done == 3
    assert queue.delete_dead(Where(tenant=b"b", error="ValueError")).wait().done == 3
    assert queue.delete_dead(Where(older_than=3600)).wait().done == 0
    assert queue.delete_dead(Where(older_than=0)).wait().done == 1
    assert left(queue) == []
    assert queue.delete_dead(Where(older_than=0)).wait().done == 0


def test_a_parent_stands_for_all_its_children(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=1)
    for key in ("a", "a/1", "a/2", "ab/1", "b/a"):
        killed(queue, 1, key)
    assert queue.delete_dead(Where(tenant="a/1")).wait().done == 1
    assert [each.shard_key for each in queue.dead()] == ["a", "a/2", "ab/1", "b/a"]
    assert queue.delete_dead(Where(tenant="a")).wait().done == 2
    assert [each.shard_key for each in queue.dead()] == ["ab/1", "b/a"]


def test_what_is_not_named_is_not_deleted(queue: Queue, world: World) -> None:
    ids = killed(queue, 1)
    wrong: tuple[dict[str, Any], ...] = (
        {}, {"limit": 5}, {"rate": 1.0}, {"letters": [], "ids": []}, {"letters": Where(tenant="t"), "ids": []},
        {"letters": queue.dead(), "limit": 1}, {"letters": queue.dead(), "rate": 1.0}, {"ids": ids, "limit": 1},
        {"ids": ids, "rate": 1.0}, {"ids": ["no id"]}, {"ids": ids[0]}, {"letters": ["x"]}, {"letters": "t"},
    )  # fmt: skip
    for bad in wrong:
        with pytest.raises(ConfigError):
            queue.delete_dead(**bad)
    assert queue.stats().dead == 1
    with pytest.raises(QueueMissing):
        world.client().queue("nowhere").delete_dead(queue.dead())


def test_many_are_deleted_in_pages(queue: Queue, seed: int) -> None:
    queue.write_many([(number, f"t{number % 3}") for number in range(450)])
    while deliveries := queue.read_many(200):
        assert queue.reject_many(deliveries, "poison") == []
    ids = left(queue)
    chosen = random.Random(seed).sample(ids, 230)
    assert queue.delete_dead(ids=chosen) == 230
    assert left(queue) == [each for each in ids if each not in set(chosen)]
    rest = left(queue)
    assert queue.delete_dead(Where(reason="poison"), limit=150).wait().done == 150
    assert left(queue) == rest[150:]
    assert queue.stats().dead == 70


def test_a_redriven_letter_is_not_deleted_by_who_still_holds_it(queue: Queue) -> None:
    (dead,) = killed(queue, 1)
    letters: list[DeadLetter] = queue.dead()
    assert queue.redrive(letters) == 1
    assert (queue.delete_dead(letters), queue.delete_dead(ids=[dead])) == (0, 0)
    assert queue.redrive(letters) == 0
    assert queue.read().message_id == dead


def test_a_full_queue_of_dead_letters_drops_the_oldest_if_told_so(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, max_dead=3, drop_dead=1, journal=1000)
    queue.declare()
    replay = Replay(queue)
    ids = killed(queue, 5)
    assert left(queue) == ids[2:]
    stats = queue.stats()
    assert (stats.dead, stats.dead_dropped, stats.dead_lettered, stats.delayed) == (3, 2, 5, 0)
    replay.follow()
    assert [each.message_id for each in replay.events if each.kind == "deleted"] == ids[:2]
    queue.configure(drop_dead=0)
    (waiting,) = killed(queue, 1)
    assert (left(queue), queue.stats().delayed, queue.status(waiting).reason) == (ids[2:], 1, "max_dead")
    queue.configure(drop_dead=1, max_dead=1)
    killed(queue, 1)
    assert queue.stats().dead == 1


@pytest.mark.runs_in("test-all")
def test_old_dead_letters_are_deleted_by_whoever_reads(open_queue: OpenQueue, world: World, real: None) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, dead_ttl=1)
    killed(queue, 250)

    def are_gone() -> bool:
        queue.read_many(1)
        return queue.stats().dead == 0

    eventually(are_gone, what="the end of all dead letters")
    assert queue.stats().dead_deleted == 250
    assert world.raw.hlen(queue.state.keys.moved) == 1


def test_letters_of_an_earlier_version_can_be_deleted_too(queue: Queue, world: World) -> None:
    """They have no entry among the ids: a cancel does not know them, but a filter and a letter do."""
    ids = killed(queue, 3)
    for each in ids:
        world.raw.hdel(queue.state.keys.moved, each)
    assert queue.delete_dead(ids=ids) == 0
    assert queue.delete_dead(queue.dead()[:1]) == 1
    assert queue.delete_dead(Where(tenant="t")).wait().done == 2
    assert queue.stats().dead == 0
