"""A queue gets more partitions and fewer while it is used: nothing is lost, doubled or stored again."""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import ConfigError, Limits, Message, Queue
from shardq.model.partitions import map_of
from shardq.ops.operate.controls import controls
from shardq.ops.queue.sight import sight
from shardq.ops.queue.steps import Sleep
from shardq.partitions import resize
from shardq.partitions.homes import home
from shardq.partitions.map import PartitionMap
from tests.conformance.conftest import OpenQueue
from tests.conformance.partitions.maps import begin
from tests.conformance.world import World, drained, keys_of

TENANTS = [f"tenant-{number}" for number in range(20)]
MOVED = next(each for each in TENANTS if 0 != home(each, 3) != home(each, 6) != 0)
"""Whose home is another after a resize from 3 to 6, and never the head."""
SIZES = [4, 8, 3, 1, 6]
SOON = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds an old map here: each step is done by clients that look at the queue anew."""
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)


def fresh(world: World, queue: Queue) -> Queue:
    """The queue of a client that has seen nothing yet."""
    found = world.client().queue(queue.name)
    found.partitions()
    return found


def map_in(queue: Queue) -> PartitionMap:
    return PartitionMap.parse(map_of(queue.settings().partitions))


def ids_of(found: Any) -> Counter[str]:
    return Counter(each.message_id for each in found)


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=4, streams_per_shard=2, result_ttl=60)
    queue.declare()
    return queue


def test_a_queue_gets_more_partitions_and_fewer_and_loses_nothing(world: World, queue: Queue) -> None:
    ids: Counter[str] = Counter()
    held = []
    for wanted in SIZES:
        ids.update([queue.write(tenant, shard_key=tenant) for tenant in TENANTS])
        held += queue.read_many(7)
        read, written = queue.resize(partitions=wanted)
        assert (written, read >= wanted) == (wanted, True)
        queue = fresh(world, queue)
        assert queue.len() == ids.total()
        ids.update(queue.write_many([(tenant, tenant) for tenant in TENANTS]))
        assert [each.is_written for each in queue.partitions()] == [number < wanted for number in range(read)]
    found = drained(queue)
    assert ids_of([*held, *found]) == ids
    assert queue.ack_many([*held, *found]) == []
    assert (queue.len(), queue.stats().acked) == (0, ids.total())


def test_new_messages_go_to_the_new_homes(world: World, queue: Queue) -> None:
    for wanted in SIZES:
        queue.resize(partitions=wanted)
        queue = fresh(world, queue)
        ids = [queue.write("x", shard_key=tenant) for tenant in TENANTS]
        assert [int(each.partition("@")[2] or 0) for each in ids] == [home(tenant, wanted) for tenant in TENANTS]


@pytest.mark.parametrize("kind", ["dedup_key", "unique_key"])
def test_a_key_is_never_stored_twice_across_resizes(world: World, queue: Queue, kind: str) -> None:
    def keyed(key: str) -> dict[str, Any]:
        return {kind: key}

    first: dict[str, str] = {}
    for step, wanted in enumerate([1, *SIZES]):
        queue.resize(partitions=wanted)
        queue = fresh(world, queue)
        for tenant in TENANTS:
            written = queue.write(wanted, shard_key=tenant, **keyed("same"))
            assert written == first.setdefault(tenant, written)
            (again,) = queue.write_many([Message(wanted, tenant, **keyed("same"))])
            assert (again, again.is_new) == (first[tenant], False)
            new = queue.write(wanted, shard_key=tenant, **keyed(f"of step {step}"))
            assert (new.is_new, int(new.partition("@")[2] or 0)) == (True, home(tenant, wanted))
    assert queue.len() == len(TENANTS) * (2 + len(SIZES))


@pytest.mark.parametrize("wanted", [6, 2])
def test_a_client_of_the_map_before_and_one_of_the_next_store_a_key_once(
    world: World, queue: Queue, wanted: int
) -> None:
    """Whoever writes it first: the one of the next asks where it was, and then the one before is refused there."""
    queue.resize(partitions=3)
    begin(queue, wanted)
    before = fresh(world, queue)
    before.write("x", shard_key="t")
    assert (map_in(before).written, (map_in(before).towards or [0])[0]) == (3, wanted)
    queue.resize(partitions=wanted)
    after = fresh(world, queue)
    # A write to the head would tell of the new map: its epoch has moved.
    elsewhere = [tenant for tenant in TENANTS if home(tenant, 3) and home(tenant, wanted)]
    for first, second in [(before, after), (after, before)]:
        for tenant in elsewhere:
            written = first.write("x", shard_key=tenant, dedup_key=f"{first is after}")
            again = second.write("x", shard_key=tenant, dedup_key=f"{first is after}")
            assert (again, again.is_new) == (written, False)
            assert int(written.partition("@")[2] or 0) in {
                home(tenant, wanted),
                *({home(tenant, 3)} if first is before else ()),
            }


@pytest.mark.parametrize("wanted", [6, 1])
def test_a_resize_that_died_half_way_is_called_again_and_goes_on(world: World, queue: Queue, wanted: int) -> None:
    queue.resize(partitions=3)
    begin(queue, wanted)
    between = fresh(world, queue)
    ids = ids_of_written(between)
    assert [each.is_written for each in between.partitions()] == [number < 3 for number in range(max(3, wanted))]
    again = fresh(world, queue)
    assert again.resize(partitions=wanted) == (max(3, wanted), wanted)
    after = fresh(world, queue)
    ids += ids_of_written(after)
    found = drained(after)
    assert ids_of(found) == ids
    assert after.ack_many(found) == []


def ids_of_written(queue: Queue) -> Counter[str]:
    return Counter([queue.write(tenant, shard_key=tenant) for tenant in TENANTS])


def test_new_partitions_have_what_the_head_has(world: World, queue: Queue) -> None:
    queue.configure(max_deliveries=3, visibility_timeout=50.0)
    queue.resize(6)
    queue.set_plan("gold", rate=5.0, weight=3)
    queue.set_limits({"limited": Limits(max_in_flight=2), "golden": "gold"}, by="me", note="why")
    queue.set_limits({"for a while": Limits(rate=1)}, seconds=500)
    queue.set_weights({"heavy": 7})
    queue.pause("paused", by="you")
    queue.pause(seconds=300)
    queue.resize(partitions=3)
    queue = fresh(world, queue)
    head, *others = [queue.client.run(controls(state)) for state in _states(queue)]
    for each in others:
        assert each.plans == head.plans
        assert {key: (one.limits, one.by, one.note) for key, one in each.limits.items()} == {
            key: (one.limits, one.by, one.note) for key, one in head.limits.items()
        }
        assert {key: one.weight for key, one in each.weights.items()} == {"heavy": 7}
        assert {key: one.by for key, one in each.paused.items() if key} == {"paused": "you"}
        assert 290 < each.paused[None].until - each.time <= 300
        assert math.isinf(each.paused["paused"].until)
    assert [part.stats and part.stats.wanted for part in queue.partitions()] == [6, 6, 6]
    settings = [queue.client.run(sight(state, state.until())).view.config for state in _states(queue)]
    assert {(each.max_deliveries, each.visibility_timeout) for each in settings} == {(3, 50.0)}


def _states(queue: Queue) -> Any:
    queue.len()
    return queue.state.parts.states


def test_two_resizes_to_the_same_number_at_once_are_as_one(real: None, world: World, queue: Queue) -> None:
    queues = [queue, *(fresh(world, queue) for _ in range(2))]
    with ThreadPoolExecutor(3) as pool:
        found = [each.result(SOON) for each in [pool.submit(each.resize, partitions=4) for each in queues]]
    assert found == [(4, 4)] * 3
    assert map_in(fresh(world, queue)).written == 4


def test_of_two_resizes_at_once_one_wins_and_the_other_hears_it(
    real: None, world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.5)
    queues = {wanted: fresh(world, queue) for wanted in (3, 5)}
    ids = ids_of_written(queue)
    with ThreadPoolExecutor(2) as pool:
        running = {wanted: pool.submit(each.resize, partitions=wanted) for wanted, each in queues.items()}
        failed = {wanted: str(each.exception(SOON)) for wanted, each in running.items() if each.exception(SOON)}
    after = fresh(world, queue)
    (lost,) = failed
    assert "another client has changed the partitions" in failed[lost]
    assert map_in(after).written == {3: 5, 5: 3}[lost]
    ids += ids_of_written(after)
    assert ids_of(drained(after)) == ids


@pytest.mark.once
def test_who_waits_hears_of_one_who_began_later(world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    other = fresh(world, queue)

    def interrupted(seconds: float) -> Sleep:
        monkeypatch.setattr(resize, "Sleep", Sleep)
        other.resize(partitions=6)
        return Sleep(0)

    for wanted in (4, 3):
        monkeypatch.setattr(resize, "Sleep", interrupted)
        with pytest.raises(ConfigError, match="another client has changed"):
            queue.resize(partitions=wanted)
        queue = fresh(world, queue)
        assert map_in(queue).written == 6
        queue.resize(partitions=5)


def test_a_bound_of_the_queue_is_shared_out_anew(world: World, queue: Queue) -> None:
    queue.configure(max_len=60, total_in_flight=24)
    for wanted in SIZES:
        read, _ = queue.resize(partitions=wanted)
        queue = fresh(world, queue)
        settings = queue.settings()
        assert (settings.max_len, settings.total_in_flight, settings.partitions) == (60, 24, wanted)
        queue.len()
        metas = [world.raw.hgetall(keys.meta) for keys in keys_of(queue)]
        assert len(metas) == read
        assert [sum(int(meta[name]) for meta in metas) for name in (b"max_len", b"total_in_flight")] == [60, 24]
    with pytest.raises(ConfigError, match="if it is less than their number, 25"):
        queue.resize(partitions=25)
    assert [each.is_written for each in queue.partitions()] == [True] * 6 + [False] * 2


@pytest.fixture
def moved(world: World, queue: Queue) -> Queue:
    """The queue, where somebody has two messages in a former home, and one in flight in its home."""
    queue.resize(partitions=3)
    queue.write_many([("former", MOVED)] * 2)
    queue.resize(partitions=6)
    queue = fresh(world, queue)
    queue.write("home", shard_key=MOVED)
    found = queue.read_many(9)
    assert sorted(each.payload for each in found) == ["former", "former", "home"]
    assert queue.nack_many([each for each in found if each.payload == "former"]) == []
    return queue


def test_what_is_said_of_a_tenant_has_what_is_in_its_former_home(moved: Queue) -> None:
    found = moved.tenant(MOVED)
    assert (found.backlog, found.in_flight) == (2, 1)


def test_a_list_of_tenants_has_what_each_has_in_all_partitions(moved: Queue) -> None:
    """Also in one where it has nothing of what the list is ordered by."""
    (found,) = moved.tenants("backlog")
    assert (found.backlog, found.in_flight) == (2, 1)


def test_limits_are_kept_for_partitions_that_come_while_there_is_no_window(world: World, queue: Queue) -> None:
    """As in a queue without partitions, they hold again once it has one."""
    queue.resize(partitions=1)
    moves, paused = [each for each in TENANTS if home(each, 5)][:2]
    queue.set_limits({moves: Limits(max_in_flight=2)})
    queue.pause(paused)
    queue.configure(window=0)
    queue.resize(partitions=5)
    queue = fresh(world, queue)
    queue.configure(window=1)
    queue.write_many([("x", moves)] * 5 + [("x", paused)] * 5)
    assert [each.shard_key for each in queue.read_many(20)] == [moves] * 2
