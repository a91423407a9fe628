"""No tenant uses up a bound that others need: a newcomer finds room, however greedy others are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shardq import BackendError, Message, PartlyWritten, Queue, QueueFull
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import drained
from tests.conformance.world import World

BOUND = 1000
RESULT = 500
"""Bytes of a result: with what stands beside it, about 780 are counted."""

Use = Callable[[Queue, str, int], bool]


def write(queue: Queue, key: str, number: int, **options: Any) -> bool:
    """Whether a write was taken."""
    try:
        return bool(queue.write(number, shard_key=key, **options))
    except QueueFull:
        return False


def use_dedup(queue: Queue, key: str, number: int) -> bool:
    """Whether a dedup key was taken."""
    return write(queue, key, number, dedup_key=str(number))


def use_unique(queue: Queue, key: str, number: int) -> bool:
    """Whether a unique key was taken."""
    return write(queue, key, number, unique_key=str(number))


def delivered(queue: Queue, key: str) -> Any:
    """A message of this shard key, which alone has one waiting."""
    queue.write("x", shard_key=key)
    delivery = queue.read()
    assert delivery.shard_key == key
    return delivery


def use_dead(queue: Queue, key: str, number: int) -> bool:
    """Whether a message became a dead letter, and does not wait for room."""
    delivery = delivered(queue, key)
    delivery.reject("no")
    if queue.status(delivery.message_id).state == "dead":
        return True
    queue.cancel(delivery.message_id)
    return False


def use_results(queue: Queue, key: str, number: int) -> bool:
    """Whether a result was kept."""
    delivery = delivered(queue, key)
    delivery.ack(result=b"x" * RESULT)
    told = queue.status(delivery.message_id)
    return told.state == "done" and told.reason != "full"


USES: dict[str, tuple[Use, dict[str, Any]]] = {
    "length": (write, {"max_len": BOUND}),
    "dedup keys": (use_dedup, {"max_dedup": BOUND}),
    "unique keys": (use_unique, {"max_dedup": BOUND}),
    "dead letters": (use_dead, {"max_dead": BOUND}),
    "results": (use_results, {"max_result_bytes": 780 * BOUND, "result_ttl": 600}),
}


def fill(queue: Queue, use: Use, keys: list[str]) -> Counter[str]:
    """Let them take turns until each was refused. Return how often each was not."""
    taken, greedy, number = Counter[str](), list(keys), 0
    while greedy:
        refused = {key for key in greedy if not use(queue, key, number)}
        taken.update(key for key in greedy if key not in refused)
        greedy, number = [key for key in greedy if key not in refused], number + 1
    return taken


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("greedy", [1, 10, 100])
@pytest.mark.parametrize(("use", "settings"), USES.values(), ids=USES.keys())
def test_however_greedy_others_are_a_newcomer_gets_its_part(
    open_queue: OpenQueue, world: World, real: None, use: Use, settings: dict[str, Any], greedy: int
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, **settings)
    taken = fill(queue, use, [f"greedy-{number}" for number in range(greedy)])
    free = 1 / (1 + 4 * greedy)
    assert sum(taken.values()) == pytest.approx(BOUND * (1 - free), rel=0.05), "all but what is left to newcomers"
    assert max(taken.values()) - min(taken.values()) <= 1 + max(taken.values()) // 10
    assert use(queue, "newcomer", 0)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize(("use", "settings"), USES.values(), ids=USES.keys())
def test_greedy_ones_after_each_other_leave_newcomers_a_place(
    open_queue: OpenQueue, world: World, real: None, use: Use, settings: dict[str, Any]
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, **settings)
    taken = [fill(queue, use, [f"greedy-{number}"])[f"greedy-{number}"] for number in range(5)]
    assert taken[0] == pytest.approx(BOUND * 4 / 5, rel=0.05)
    assert [use(queue, f"newcomer-{number}", 0) for number in range(20)] == [True] * 20


@pytest.mark.once
def test_what_is_said_of_results_that_are_not_kept_leaves_a_newcomer_its_part(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, result_ttl=600, max_result_bytes=780 * 100)
    greedy = [f"greedy-{number}" for number in range(15)]
    fill(queue, use_results, greedy)
    for number in range(20):
        assert [use_results(queue, key, number) for key in greedy] == [False] * len(greedy)
    assert use_results(queue, "newcomer", 0)


@pytest.mark.once
@pytest.mark.parametrize(("bound", "kept"), [(1, 1), (2, 2), (4, 4), (5, 4), (10, 8), (100, 80)])
def test_one_alone_gets_four_fifths(open_queue: OpenQueue, bound: int, kept: int) -> None:
    queue = open_queue(streams=4, max_dedup=bound)
    assert fill(queue, use_dedup, ["t"]) == {"t": kept}


def test_a_refusal_tells_who_has_how_much(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dedup=10, dedup_window=100)
    assert fill(queue, use_dedup, ["t"]) == {"t": 8}
    assert use_dedup(queue, "u", 0)
    with pytest.raises(QueueFull, match="'t' has 8 of them, others have 1") as caught:
        queue.write(1, shard_key="t", dedup_key="one more")
    full = caught.value
    assert (full.bound, full.limit, full.used, full.others) == ("max_dedup", 10, 8, 1)
    assert full.retry_after is not None
    assert 90 < full.retry_after <= 100
    queue.configure(max_len=5)
    with pytest.raises(QueueFull) as caught:
        queue.write(1, shard_key="t")
    full = caught.value
    assert (full.bound, full.limit, full.used, full.others, full.retry_after) == ("max_len", 5, 8, 1, None)
    queue.configure(max_len=0, max_backlog=3)
    with pytest.raises(QueueFull) as caught:
        queue.write(1, shard_key="t")
    assert (caught.value.bound, caught.value.limit, caught.value.used) == ("max_backlog", 3, 8)


def test_of_a_batch_those_are_refused_that_have_their_share(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_len=10)
    with pytest.raises(PartlyWritten) as caught:
        queue.write_many([*((number, "t") for number in range(9)), (0, "u"), (9, "t")])
    results = caught.value.results
    assert [isinstance(each, QueueFull) for each in results] == [False] * 8 + [True, False, True]
    assert [(each.used, each.others) for each in results if isinstance(each, QueueFull)] == [(8, 1), (8, 1)]
    assert queue.len() == 9


def test_a_message_with_two_keys_needs_two_places(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dedup=3)
    assert use_dedup(queue, "t", 0)
    assert write(queue, "u", 0, dedup_key="d", unique_key="u")
    assert not write(queue, "v", 0, dedup_key="d", unique_key="u")
    assert [(each.shard_key, each.dedup_keys) for each in queue.tenants("dedup")] == [("u", 2), ("t", 1)]


def test_of_a_full_queue_without_a_window_nobody_knows_a_share(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, window=0, max_len=5)
    assert [write(queue, "t", number) for number in range(6)] == [True] * 5 + [False]
    with pytest.raises(QueueFull) as caught:
        queue.write(1, shard_key="u")
    assert (caught.value.used, caught.value.others) == (None, None)
    queue.configure(max_len=0, max_dedup=5)
    assert fill(queue, use_dedup, ["t"]) == {"t": 4}
    assert [(each.shard_key, each.dedup_keys) for each in queue.tenants("dedup")] == [("t", 4)]


def test_a_parent_has_one_share(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dedup=10, parents=1)
    assert sum(fill(queue, use_dedup, ["p/1", "p/2", "p/3"]).values()) == 8
    assert use_dedup(queue, "q/1", 0)
    assert [(each.shard_key, each.dedup_keys) for each in queue.tenants("dedup")] == [("p", 8), ("q", 1)]


def test_keys_that_all_share_count_for_who_has_them(open_queue: OpenQueue) -> None:
    """A unique key goes to another shard key when its message does, or when it is done."""
    queue = open_queue(streams=4, key_scope="queue", max_dedup=10)
    queue.write(1, shard_key="t", unique_key="k")
    queue.write(2, shard_key="u", unique_key="k", on_conflict="replace")
    assert (queue.tenant("t").dedup_keys, queue.tenant("u").dedup_keys) == (0, 1)
    drained(queue)
    queue.write(3, shard_key="v", unique_key="k")
    assert (queue.tenant("u").dedup_keys, queue.tenant("v").dedup_keys) == (0, 1)
    queue.cancel(queue.write(4, shard_key="w", unique_key="l"))
    assert queue.tenant("w").dedup_keys == 0


def test_where_parents_change_what_is_kept_already_leaves_the_share_that_it_is_in(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4, parents=1, result_ttl=60)
    for number in range(3):
        assert use_dead(queue, "p/1", number)
        assert use_results(queue, "p/1", number)
    before = queue.tenants("dead"), queue.tenants("results")
    assert [(each.shard_key, each.dead) for each in before[0]] == [("p", 3)]
    queue.configure(parents=0)
    assert use_dead(queue, "p/1", 3)
    assert [(each.shard_key, each.dead) for each in queue.tenants("dead")] == [("p", 3), ("p/1", 1)]
    assert queue.delete_dead(ids=letters(queue)[:2]) == 2
    assert queue.redrive(queue.dead(1)) == 1
    assert [(each.shard_key, each.dead) for each in queue.tenants("dead")] == [("p/1", 1)]
    ends = queue.state.keys.result_ends
    world.raw.zadd(ends, {field: 1 for field in world.raw.zrange(ends, 0, -1) if field}, xx=True)
    drained(queue)
    assert use_results(queue, "q", 0)
    assert [each.shard_key for each in queue.tenants("results")] == ["q"]


# --- dead letters


def rejected(queue: Queue, key: str, count: int) -> list[str]:
    """So many messages of a shard key are rejected. Return their ids."""
    found = []
    for _ in range(count):
        delivery = delivered(queue, key)
        delivery.reject("no")
        found.append(delivery.message_id)
    return found


def letters(queue: Queue) -> list[str]:
    """The ids of the dead letters, oldest first."""
    return [each.message_id for each in queue.dead(1000)]


def test_with_drop_dead_a_letter_replaces_the_oldest_of_its_own(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dead=10, drop_dead=1)
    quiet = rejected(queue, "quiet", 1)
    loud = rejected(queue, "loud", 30)
    assert letters(queue) == quiet + loud[-8:]
    assert queue.stats().dead_dropped == 22
    quiet += rejected(queue, "quiet", 1)
    assert set(quiet) <= set(letters(queue))


def test_the_oldest_is_found_where_letters_before_it_are_gone(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dead=10, drop_dead=1)
    loud = rejected(queue, "loud", 8)
    dead = {each.message_id: each for each in queue.dead(100)}
    assert queue.redrive([dead[loud[0]], dead[loud[3]]]) == 2
    assert len(drained(queue)) == 2
    assert queue.delete_dead(ids=[loud[1], loud[5]]) == 2
    assert queue.tenant("loud").dead == 4
    later = rejected(queue, "loud", 5)
    assert letters(queue) == [loud[4], loud[6], loud[7], *later]
    assert queue.tenant("loud").dead == 8


def test_without_drop_dead_a_letter_above_the_share_waits_for_room(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, max_dead=10)
    loud = rejected(queue, "loud", 9)
    assert letters(queue) == loud[:8]
    assert queue.status(loud[8]).reason == "max_dead"
    quiet = rejected(queue, "quiet", 1)
    assert letters(queue) == [*loud[:8], *quiet]
    queue.delete_dead(ids=[loud[0]])
    world.elapse(queue, 6)
    assert queue.read_many(1) == []
    assert letters(queue) == [*loud[1:8], *quiet, loud[8]]


def test_letters_of_an_older_version_are_in_nobodys_share(open_queue: OpenQueue, world: World) -> None:
    """They have no number among those of their tenant: they are listed, redriven and deleted as ever."""
    queue = open_queue(streams=4)
    ids = rejected(queue, "t", 3)
    moved = queue.state.keys.moved
    for name, value in world.raw.hgetall(moved).items():
        if name.startswith(b"n"):
            world.raw.hdel(moved, name)
        elif name:
            world.raw.hset(moved, name, value.partition(b"|")[0])
    world.raw.hdel(queue.state.keys.meta, "X:t")
    assert queue.tenant("t").dead == 0
    assert [queue.status(each).state for each in ids] == ["dead"] * 3
    assert queue.redrive(queue.dead(1)) == 1
    assert queue.delete_dead(ids=ids[1:2]) == 1
    assert rejected(queue, "t", 1) == letters(queue)[1:]
    assert queue.tenant("t").dead == 1


# --- who uses what


def test_it_is_told_who_uses_most_of_each_bound(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, result_ttl=600)
    for number, key in enumerate(("a", "b", "c")):
        for turn in range(number + 1):
            assert use_dead(queue, key, turn)
            assert use_results(queue, key, turn)
            assert use_dedup(queue, key, turn)
            queue.read().ack()
    for order, used in (("dedup", "dedup_keys"), ("dead", "dead"), ("results", "result_bytes")):
        table = [(each.shard_key, getattr(each, used)) for each in queue.tenants(order)]  # type: ignore[arg-type]
        assert [key for key, _ in table] == ["c", "b", "a"]
        assert [number / table[2][1] for _, number in table] == pytest.approx([3, 2, 1], rel=0.01)
        assert table[0][1] == getattr(queue.tenant("c"), used)
    stats = queue.stats()
    assert stats.dead == sum(each.dead for each in queue.tenants("dead"))
    assert stats.result_bytes == sum(each.result_bytes for each in queue.tenants("results"))


def counters(queue: Queue, world: World) -> list[bytes]:
    """What the state says of shares."""
    return [field for field in world.raw.hkeys(queue.state.keys.meta) if field[:2] in (b"D:", b"X:", b"R:")]


@pytest.mark.everywhere
def test_when_all_is_over_the_bound_is_whole_and_no_counter_is_left(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, max_dedup=10, max_dead=10, max_len=100, result_ttl=60, max_result_bytes=5000)
    for key in ("a", "b"):
        for number in range(8):
            use_dead(queue, key, number)
            use_results(queue, key, number)
    for key in ("a", "b"):
        fill(queue, use_dedup, [key])
        write(queue, key, 0, unique_key="u")
    drained(queue)
    assert counters(queue, world) != []
    queue.delete_dead(ids=letters(queue))
    index = queue.state.keys.dedup_index
    world.raw.zadd(index, {field: 1 for field in world.raw.zrange(index, 0, -1) if field}, xx=True)
    for number in range(40):  # what is over is forgotten when others write
        queue.write(number, shard_key="c")
    ends = queue.state.keys.result_ends
    world.raw.zadd(ends, {field: 1 for field in world.raw.zrange(ends, 0, -1) if field}, xx=True)
    drained(queue)
    use_results(queue, "c", 0)  # one that is kept forgets those that are over
    assert counters(queue, world) == [b"R:c"]
    assert fill(queue, use_dedup, ["d"]) == {"d": 8}


def test_a_repeated_message_needs_no_place(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dedup=5, max_len=5)
    ids = [queue.write(number, shard_key="t", dedup_key=str(number)) for number in range(4)]
    again = queue.write_many([Message(number, "t", dedup_key=str(number)) for number in range(4)])
    assert again == ids


# --- what else may happen


def forgotten_next(queue: Queue, world: World) -> None:
    """The time of all keys is over."""
    index = queue.state.keys.dedup_index
    world.raw.zadd(index, {field: 1 for field in world.raw.zrange(index, 0, -1) if field}, xx=True)


def remembered(queue: Queue, world: World) -> int:
    """How many keys there are."""
    return int(world.raw.zcard(queue.state.keys.dedup_index)) - 1


def test_a_write_that_fails_counts_what_it_forgot(open_queue: OpenQueue, world: World) -> None:
    """A stream is of another type: the call has no effect, or tells all of it."""
    queue = open_queue(streams=1)
    for number in range(5):
        assert use_dedup(queue, "t", number)
    drained(queue)
    forgotten_next(queue, world)
    stream = queue.state.keys.stream(0)
    world.raw.delete(stream)
    world.raw.set(stream, "of another type")
    with pytest.raises(BackendError):
        queue.write(1, shard_key="t", dedup_key="new")
    assert int(world.raw.hget(queue.state.keys.meta, "D:t") or 0) == remembered(queue, world)


def test_where_the_keys_were_lost_nobody_is_refused_for_them(open_queue: OpenQueue, world: World) -> None:
    """The keys of Redis that remember were deleted, or evicted."""
    queue = open_queue(streams=4, max_dedup=10, max_dead=10)
    assert fill(queue, use_dedup, ["t"]) == {"t": 8}
    drained(queue)
    rejected(queue, "t", 8)
    keys = queue.state.keys
    for key in (keys.dedup, keys.dedup_index, keys.dead, keys.moved):
        world.raw.delete(key)
    world.client().queue(queue.name, create=True).declare()  # makes them again
    assert fill(queue, use_dedup, ["t"]) == {"t": 8}
    drained(queue)
    assert letters(queue) == []
    assert rejected(queue, "t", 8) == letters(queue)
    assert (queue.tenant("t").dedup_keys, queue.tenant("t").dead) == (8, 8)
