"""The purge of one tenant: all that it has goes, is told, and nothing of others changes."""

from __future__ import annotations

import random

import pytest

from shardq import ConfigError, Delivery, Message, MessageCancelled, Purged, Queue, QueueMissing
from shardq.model import PeekState
from shardq.ops.operate.purging import purge_of
from shardq.ops.queue.steps import Call, Op
from shardq.ops.read.give_back import unread
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

SETTINGS = {"streams": 8, "streams_per_shard": 2, "visibility_timeout": 60.0, "journal": 10_000}


def fill(queue: Queue, key: str, count: int = 30) -> list[str]:
    """Messages of one shard key: some delayed, with unique keys and dedup keys, large ones among them."""
    ids = [
        str(each)
        for each in queue.write_many([Message(["x" * 1000, n] if n % 7 == 0 else n, key) for n in range(count)])
    ]
    ids += [queue.write(n, shard_key=key, delay=600) for n in range(5)]
    ids += [queue.write(n, shard_key=key, unique_key=f"u{n}") for n in range(3)]
    ids += [queue.write(n, shard_key=key, dedup_key=f"d{n}") for n in range(3)]
    ids += [queue.write("later", shard_key=key, unique_key="later", delay=600)]
    return ids


def of(held: list[Delivery], key: str) -> list[Delivery]:
    """The deliveries of a shard key."""
    return [each for each in held if each.shard_key == key]


def order_of(queue: Queue, key: str | bytes) -> list[str]:
    """The ids of what a shard key has, as it would be delivered, come due, or end."""
    states: tuple[PeekState, ...] = ("waiting", "delayed", "in_flight", "dead")
    return [each.message_id for state in states for each in queue.peek(1000, shard_key=key, state=state).messages]


def sorted_of(queue: Queue, key: str | bytes) -> list[str]:
    """The same in any order: without accounts, peek goes round the streams, which others share."""
    return sorted(order_of(queue, key))


def mix(queue: Queue, keys: tuple[str, ...], rng: random.Random) -> dict[str, list[Delivery]]:
    """Something of each kind of each key. The deliveries that are still held."""
    for key in keys:
        fill(queue, key)
    held = queue.read_many(40)
    rng.shuffle(held)
    for key in keys:
        first, second, third, fourth, *_ = of(held, key)
        first.reject("poison")
        second.nack(delay=600, error="later")
        third.nack(error="again")
        fourth.ack()
    return {key: of(held, key)[4:] for key in keys}


@pytest.mark.everywhere
@pytest.mark.parametrize("window", [1, 5, 0])
def test_all_of_a_tenant_goes_and_nothing_of_others(
    open_queue: OpenQueue, world: World, seed: int, window: int
) -> None:
    queue = open_queue(**SETTINGS, window=window)
    held = mix(queue, ("a", "b", "c"), random.Random(seed))
    seen = order_of if window else sorted_of
    before = {key: seen(queue, key) for key in ("b", "c")}
    tenants = {key: queue.tenant(key) for key in ("b", "c")} if window else {}
    stats = queue.stats()
    told = queue.purge(shard_key="a")
    in_flight = len(held["a"])
    assert (told.delayed, told.dead, told.left_in_flight, told.cancelled) == (7, 1, in_flight, 0)
    assert told.waiting == 30 + 3 + 3 - 3 - in_flight
    assert {key: seen(queue, key) for key in ("b", "c")} == before
    assert sorted(order_of(queue, "a")) == sorted(each.message_id for each in held["a"])
    after = queue.stats()
    assert (after.backlog, after.delayed, after.dead) == (
        stats.backlog - told.waiting, stats.delayed - told.delayed, stats.dead - told.dead,
    )  # fmt: skip
    assert (after.in_flight, after.purged) == (stats.in_flight, told.waiting + told.delayed)
    for key, tenant in tenants.items():
        now = queue.tenant(key)
        assert (now.backlog, now.delayed, now.in_flight, now.dead, now.dedup_keys) == (
            tenant.backlog, tenant.delayed, tenant.in_flight, tenant.dead, tenant.dedup_keys,
        )  # fmt: skip
    assert world.census(queue).problems() == []
    queue.ack_many(held["a"])
    if window:
        assert "a" not in [each.shard_key for each in queue.tenants()]
    assert world.census(queue).problems() == []


def test_its_keys_are_free_again(open_queue: OpenQueue) -> None:
    queue = open_queue(**SETTINGS)
    for key in ("a", "b"):
        fill(queue, key)
    before = queue.write("again", shard_key="b", dedup_key="d1"), queue.write("again", shard_key="b", unique_key="u1")
    assert [each.is_new for each in before] == [False, False]
    queue.purge(shard_key="a")
    assert queue.write("again", shard_key="a", dedup_key="d1").is_new
    assert queue.write("again", shard_key="a", unique_key="u1").is_new
    assert queue.write("again", shard_key="a", unique_key="later").is_new
    after = queue.write("again", shard_key="b", dedup_key="d1"), queue.write("again", shard_key="b", unique_key="u1")
    assert [each.is_new for each in after] == [False, False]
    assert queue.tenant("a").dedup_keys == 3


def test_with_in_flight_their_holders_learn_that_they_are_cancelled(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    held = mix(queue, ("a", "b"), random.Random(7))
    told = queue.purge(shard_key="a", in_flight=True)
    assert (told.left_in_flight, told.cancelled) == (0, len(held["a"]))
    for each in held["a"]:
        with pytest.raises(MessageCancelled):
            each.ack()
    for each in held["b"]:
        each.ack()
    assert queue.stats().cancelled == len(held["a"])
    assert queue.purge(shard_key="a", in_flight=True) == Purged(0, 0, 0, 0, 0)
    assert world.census(queue).problems() == []


def test_who_waits_for_the_result_of_one_in_flight_hears_that_it_is_cancelled(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(**SETTINGS)
    ids = [queue.write(number, shard_key="a", delay=600 * (number > 3)) for number in range(6)]
    ids.append(queue.write("unique", shard_key="a", unique_key="u"))
    queue.read_many(10)[0].nack()
    queue.read_many(1)
    keys = queue.state.keys
    (seconds, _) = world.raw.time()
    world.raw.hset(keys.meta, "awaited", seconds * 1000 + 60_000)
    assert queue.purge(shard_key="a", in_flight=True).cancelled == 5
    told = [word for _, fields in world.raw.xrange(keys.finished) for word in fields.get(b"ids", b"").split()]
    assert sorted(each.decode() for each in told) == sorted(str(ids[number]) for number in (0, 1, 2, 3, 6))


@pytest.mark.once
@pytest.mark.parametrize("settings", [{"window": 0}, {"parents": 1, "window": 100}])
def test_all_that_stays_in_flight_is_told(open_queue: OpenQueue, settings: dict[str, int]) -> None:
    """Among others, of which one call looks at some only."""
    queue = open_queue(**(SETTINGS | settings))
    queue.write_many([Message(n, "p/1" if n % 7 < 4 else "p/2") for n in range(700)])
    held: list[Delivery] = []
    while found := queue.read_many(200):
        held += found
    assert len(held) == 700
    assert queue.purge(shard_key="p/1") == Purged(0, 0, 0, 400)
    assert queue.purge(shard_key="p/1", in_flight=True) == Purged(0, 0, 0, 0, 400)


def test_a_parent_takes_all_its_children_along_and_a_child_nobody(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS, parents=1)
    for key in ("p/1", "p/2", "q/1", "p"):
        fill(queue, key)
    held = queue.read_many(20)
    for each in held[:8]:
        each.nack(delay=600, error="later")
    for each in held[8:12]:
        each.nack()
    queue.reject_many(held[12:16], "poison")
    others = {key: order_of(queue, key) for key in ("p/2", "q/1", "p")}
    child = order_of(queue, "p/1")
    told = queue.purge(shard_key="p/1")
    assert told.total + told.left_in_flight == len(child)
    assert {key: order_of(queue, key) for key in ("p/2", "q/1", "p")} == others
    assert world.census(queue).problems() == []
    told = queue.purge(shard_key="p", in_flight=True)
    assert told.total + told.cancelled == len(others["p/2"]) + len(others["p"]) + sum(
        each.shard_key == "p/1" for each in held[16:]
    )
    assert order_of(queue, "q/1") == others["q/1"]
    assert world.census(queue).problems() == []


def test_leases_that_are_over_wait_and_go(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    fill(queue, "a")
    fill(queue, "b")
    held = queue.read_many(30)
    world.elapse(queue, 61)
    told = queue.purge(shard_key="a")
    assert (told.waiting, told.left_in_flight) == (36, 0)
    assert len(of(held, "a")) > 5
    assert world.census(queue).problems() == []
    assert {each.shard_key for each in queue.read_many(100)} == {"b"}


def test_a_child_of_which_only_an_ended_lease_is_left_is_found(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS, parents=1)
    queue.write("late", shard_key="p/1")
    assert len(queue.read_many(1)) == 1
    world.elapse(queue, 61)
    assert queue.purge(shard_key="p") == Purged(1, 0, 0, 0)
    assert world.census(queue).problems() == []


@pytest.mark.everywhere
def test_messages_that_lie_in_streams_of_an_earlier_size_are_found(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=16, streams_per_shard=2, window=20)
    queue.write_many([Message(n, "a") for n in range(15)] + [Message(n, "b") for n in range(15)])
    queue.resize(3)
    queue.write_many([Message(n, "a") for n in range(3)])
    queue._client.run(unread(queue.state, [each.received for each in queue.read_many(2)], 60))
    told = queue.purge(shard_key="a")
    assert told == Purged(18, 0, 0, 0)
    assert queue.stats().backlog == 15
    assert world.census(queue).problems() == []


def test_many_dead_letters_of_others_are_passed_over(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, window=1)
    queue.write_many([Message(n, "ab"[n % 2]) for n in range(700)])
    while held := queue.read_many(100):
        queue.reject_many(held, "poison")
    others = [each.entry_id for each in queue.dead(1000) if each.shard_key == "b"]
    assert queue.purge(shard_key="a") == Purged(0, 0, 350, 0)
    assert [each.entry_id for each in queue.dead(1000)] == others
    assert (queue.tenant("a").dead, queue.tenant("b").dead) == (0, 350)
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_what_is_written_meanwhile_stays(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    fill(queue, "a", 2500)
    written: list[str] = []

    def purging() -> Op[Purged]:
        purge, answer = purge_of(queue.state, "a", False, None), None
        while True:
            try:
                step = purge.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            answer = yield step
            if isinstance(step, Call) and step.script.name == "purge_of":
                written.append(queue.write("new", shard_key="a"))

    before = queue.len() + queue.stats().delayed
    assert queue._client.run(purging()).total == before
    assert {each.message_id for each in queue.peek(1000, shard_key="a").messages} == set(written)
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_bad_arguments_and_a_queue_that_is_missing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2)
    queue.declare()
    for call in (
        lambda: queue.purge(in_flight=True),  # type: ignore[call-overload]
        lambda: queue.purge(shard_key=""),
        lambda: queue.purge(shard_key=7),  # type: ignore[call-overload]
        lambda: queue.purge(shard_key="a", in_flight="yes"),  # type: ignore[call-overload]
        lambda: queue.purge(shard_key="a", by="two\nlines"),
    ):
        with pytest.raises(ConfigError):
            call()
    with pytest.raises(QueueMissing):
        world.client().queue("nowhere").purge(shard_key="a")


@pytest.mark.once
@pytest.mark.parametrize("parents", [0, 1])
def test_what_another_program_wrote_among_a_tenants_messages_is_passed_over(
    open_queue: OpenQueue, world: World, parents: int
) -> None:
    queue = open_queue(**SETTINGS, parents=parents)
    fill(queue, "a")
    queue.nack_many(queue.read_many(5))
    for key in (queue.state.keys.delayed, queue.state.keys.returned):
        world.raw.zadd(key, {b"1:a:zzz": 0, b"1:a:": 0})
    assert queue.purge(shard_key="a").total == 42
    assert (queue.stats().backlog, queue.stats().in_flight) == (0, 0)
    assert world.raw.zscore(queue.state.keys.delayed, b"1:a:zzz") == 0


@pytest.mark.once
def test_a_name_of_any_bytes_is_only_itself(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    names = [b"\x00|\n", b"\xff", b"k:*", b"a\nb|c", b"12:", b"x" * 1024]
    for name in names:
        queue.write_many([Message(n, name) for n in range(5)])
        queue.write("d", shard_key=name, dedup_key="d")
        queue.write("d", shard_key=name, delay=60)
        queue.read().reject("poison")
    for name in names:
        others = {each: order_of(queue, each) for each in names if each != name}
        assert queue.purge(shard_key=name).total == len(order_of(queue, name)) + 7
        assert {each: order_of(queue, each) for each in others} == others
    assert world.census(queue).problems() == []
