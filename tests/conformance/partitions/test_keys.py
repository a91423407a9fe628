"""A message with a dedup or unique key is stored once across resizes, whoever writes it, and in which way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import Message, Queue, Written
from shardq.model.call import Call
from shardq.partitions import parts, resize
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from tests.conformance.conftest import OpenQueue
from tests.conformance.partitions.maps import calls_of
from tests.conformance.world import World

TENANTS = [f"tenant-{number}" for number in range(8)]
SIZES = [3, 6, 2]
CALL: Call[Any] = Call("app.tasks.report", {"days": 1})
WriteOne = Callable[[Queue, str, dict[str, Any]], Written]


def by_write(queue: Queue, tenant: str, key: dict[str, Any]) -> Written:
    return queue.write("x", shard_key=tenant, **key)


def by_a_call_of_a_task(queue: Queue, tenant: str, key: dict[str, Any]) -> Written:
    written: Written = queue.write(CALL, shard_key=tenant, **key)
    return written


def by_write_many(queue: Queue, tenant: str, key: dict[str, Any]) -> Written:
    return queue.write_many([Message("x", "other"), Message("x", tenant, **key)])[1]


def by_a_writer(queue: Queue, tenant: str, key: dict[str, Any]) -> Written:
    with queue.client.writer() as writer:
        writer.write(queue.name, "x", shard_key="other")
        return writer.write(queue.name, "x", shard_key=tenant, **key).result()


def by_a_topic(queue: Queue, tenant: str, key: dict[str, Any]) -> Written:
    queue.client.bind("news", queue.name)
    return queue.client.publish("news", "x", shard_key=tenant, **key)[queue.name]


def by_many_callers(queue: Queue, tenant: str, key: dict[str, Any]) -> Written:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: by_write(queue, tenant, key), range(8)))
    assert len({*ids}) == 1
    assert sum(each.is_new for each in ids) <= 1
    return next((each for each in ids if each.is_new), ids[0])


WAYS = [by_write, by_a_call_of_a_task, by_write_many, by_a_writer, by_a_topic, by_many_callers]
KEYS: list[dict[str, Any]] = [{"dedup_key": "k"}, {"unique_key": "k"}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds an old map here, but who says so."""
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=4, streams_per_shard=2)
    queue.declare()
    return queue


def fresh(world: World, queue: Queue) -> Queue:
    """The queue of a client that has seen nothing yet."""
    return world.client().queue(queue.name)


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def write(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=KEYS, ids=["dedup", "unique"])
def key(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_who_knows_the_map_asks_where_the_key_was(
    world: World, queue: Queue, write: WriteOne, key: dict[str, Any]
) -> None:
    first = {tenant: queue.write("first", shard_key=tenant, **key) for tenant in TENANTS}
    for wanted in SIZES:
        fresh(world, queue).resize(partitions=wanted)
        after = fresh(world, queue)
        for tenant in TENANTS:
            again = write(after, tenant, key)
            assert (again, again.is_new) == (first[tenant], False)
            other = write(after, tenant, dict.fromkeys(key, f"of {wanted}"))
            assert (other.is_new, split(other)[1]) == (True, home(tenant, wanted))


def test_who_was_idle_across_the_first_resize_asks_too(
    world: World, queue: Queue, write: WriteOne, key: dict[str, Any]
) -> None:
    """Its first call says that the queue has changed; the next one does not go to the head without asking."""
    tenants = [tenant for tenant in TENANTS if home(tenant, 3)]
    idle = {tenant: fresh(world, queue) for tenant in tenants}
    for each in idle.values():
        each.write("before", shard_key="other")
        each.client.bind("news", queue.name)
        each.client.publish("news", "before", shard_key="other")
    queue.resize(partitions=3)
    after = fresh(world, queue)
    first = {tenant: after.write("first", shard_key=tenant, **key) for tenant in tenants}
    assert {split(each)[1] for each in first.values()} == {1, 2}
    for tenant, each in idle.items():
        again = write(each, tenant, key)
        assert (again, again.is_new) == (first[tenant], False)


def test_who_was_idle_across_another_resize_asks_for_the_map(
    world: World, queue: Queue, write: WriteOne, key: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.resize(partitions=3)
    tenants = [tenant for tenant in TENANTS if home(tenant, 3) != home(tenant, 6)]
    idle = fresh(world, queue)
    idle.write("before", shard_key="other")
    fresh(world, queue).resize(partitions=6)
    after = fresh(world, queue)
    first = {tenant: after.write("first", shard_key=tenant, **key) for tenant in tenants}
    assert {split(each)[1] for each in first.values()} == {home(each, 6) for each in tenants}
    monkeypatch.setattr(parts, "MAX_AGE", 0.0)
    for tenant in tenants:
        again = write(idle, tenant, key)
        assert (again, again.is_new) == (first[tenant], False)


def test_of_many_messages_each_goes_where_it_is_known(world: World, queue: Queue) -> None:
    """Also those of the next calls, where one call has no room for all."""
    idle = fresh(world, queue)
    idle.write("before", shard_key="other")
    queue.resize(partitions=3)
    after = fresh(world, queue)
    messages = [Message("x" * 2000, f"tenant-{number}", dedup_key="k") for number in range(2000)]
    first = after.write_many(messages)
    again = idle.write_many(messages)
    assert again == first
    assert not any(each.is_new for each in again)


def test_a_writer_keeps_the_order_of_a_shard_key(world: World, queue: Queue) -> None:
    """Those with a key wait for an answer, and those without one do not overtake them."""
    queue.resize(partitions=3)
    after = fresh(world, queue)
    after.partitions()
    with after.client.writer() as writer:
        for number in range(60):
            tenant = TENANTS[number % 3]
            writer.write(after.name, number, shard_key=tenant, dedup_key=None if number % 2 else f"{number}")
    found = after.read_many(100)
    for tenant in TENANTS[:3]:
        own = [each.payload for each in found if each.shard_key == tenant]
        assert own == sorted(own)
    assert len(found) == 60


@pytest.mark.once
def test_only_messages_with_a_key_and_a_former_home_cost_a_call(world: World, queue: Queue) -> None:
    queue.resize(partitions=3)
    after = fresh(world, queue)
    cost = {}
    kinds: list[tuple[str, str, dict[str, Any]]]
    tenant = next(each for each in TENANTS if home(each, 3))
    head = next(each for each in TENANTS if not home(each, 3))
    after.write_many([("x", tenant), ("x", head)])
    kinds = [("plain", tenant, {}), ("moved", tenant, {"dedup_key": "d"}), ("stays", head, {"dedup_key": "d"})]
    for name, shard_key, options in kinds:
        before = calls_of(world)
        after.write("x", shard_key=shard_key, **options)
        cost[name] = calls_of(world) - before
    assert cost == {"plain": 1, "moved": 2, "stays": 1}
