"""The admission window: what a shard key may hold in the shared streams, and what becomes of the rest."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from shardq import Delivery, Limits, Message, PartlyWritten, Queue, QueueFull
from tests.conformance.conftest import OpenQueue
from tests.conformance.random_ops import RandomOps
from tests.conformance.world import World
from tests.waiting import eventually

KEYS = [f"tenant-{number}" for number in range(50)]
EIGHT = 1
"""So many places the active shard keys have together, however small the window."""


def flood(queue: Queue, key: str, count: int, first: int = 0) -> list[str]:
    """Write so many messages of one shard key."""
    return [*queue.write_many([((key, number), key) for number in range(first, first + count)])]


def older_than(queue: Queue, seconds: float) -> bool:
    """Whether the oldest message that waits is so old."""
    return (queue.stats().oldest_age or 0) > seconds


def sound(queue: Queue, world: World) -> bool:
    """Nothing is misplaced, and the accounts of the shard keys are a full count."""
    assert world.census(queue).problems() == []
    return True


def drained(queue: Queue) -> list[Delivery]:
    """Read and ack all there is."""
    found: list[Delivery] = []
    while batch := queue.read_many(7):
        found += batch
        assert queue.ack_many(batch) == []
    return found


@pytest.mark.everywhere
def test_a_shard_key_holds_no_more_than_the_window_in_the_shared_streams(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    for n in range(10):
        flood(queue, f"tenant-{n}", 20)
    stats = queue.stats()
    assert (stats.backlog, stats.held_back) == (200, 200 - sum(stats.streams))
    assert sum(stats.streams) <= sum(max(1, EIGHT // active) for active in range(1, 11))
    assert queue.len() == 200
    assert sound(queue, world)


@pytest.mark.everywhere
def test_single_writes_heed_the_window_and_keep_their_order(open_queue: OpenQueue, world: World) -> None:
    """One call for each message, as an API server makes: what is beyond the window is held back, and comes in turn."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    for number in range(30):
        queue.write(("flood", number), shard_key="flood")
    stats = queue.stats()
    assert (stats.backlog, sum(stats.streams), stats.held_back) == (30, EIGHT, 30 - EIGHT)
    queue.write(("quiet", 0), shard_key="quiet")
    found = [queue.read().payload for _ in range(31)]
    numbers = [number for key, number in found if key == "flood"]
    assert sorted(numbers[:EIGHT]) == list(range(EIGHT))  # each in a place of its own: the streams take turns
    assert numbers[EIGHT:] == list(range(EIGHT, 30))
    assert found.index(["quiet", 0]) <= EIGHT
    assert sound(queue, world)


def test_a_quiet_tenant_does_not_wait_behind_a_flood(open_queue: OpenQueue, world: World) -> None:
    """Two streams, and every one of them is the flood's: without a window the wait is the whole backlog."""
    queue = open_queue(streams=2, streams_per_shard=2, window=1)
    flood(queue, "flood", 500)
    queue.write("hello", shard_key="quiet")
    served = [queue.read().shard_key for _ in range(2 * EIGHT + 1)]
    assert "quiet" in served
    assert sound(queue, world)


@pytest.mark.once
@pytest.mark.parametrize("batch", [10, 32, 50])
def test_a_turn_is_one_message_whatever_the_batch(open_queue: OpenQueue, world: World, batch: int) -> None:
    """Of 50 floods nobody gets much of one; a quiet tenant waits for two rounds at most."""
    queue = open_queue(streams=16, streams_per_shard=4, window=1)
    for number in range(16):
        queue.write_many([((key, number), key) for key in KEYS])
    queue.write(("quiet", 0), shard_key="quiet")
    batches = [[each.payload for each in queue.read_many(batch)] for _ in range(400 // batch)]
    most = max(number for each in batches for number in Counter(key for key, _ in each).values())
    assert most <= 2 + batch // len(KEYS)  # one of the streams, and one more if its turn is next
    first = [key for some in batches for key, _ in some]
    assert first.index("quiet") <= 2 * len(KEYS)
    for key in KEYS:
        numbers = [number for some in batches for each, number in some if each == key]
        assert numbers == list(range(len(numbers)))
    assert sound(queue, world)


def test_nothing_is_lost_and_each_shard_keys_messages_come_in_order(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=16, streams_per_shard=2, window=1)
    ids = [each for n in range(8) for each in flood(queue, f"tenant-{n}", 40)]
    found = drained(queue)
    assert sorted(each.message_id for each in found) == sorted(ids)
    assert {each.count for each in found} == {1}
    for n in range(8):
        numbers = [each.payload[1] for each in found if each.shard_key == f"tenant-{n}"]
        assert sorted(numbers[:EIGHT]) == list(range(EIGHT))  # each in a place of its own: the streams take turns
        assert numbers[EIGHT:] == list(range(EIGHT, 40))
    stats = queue.stats()
    assert (queue.len(), stats.held_back, stats.acked, stats.vanished) == (0, 0, 320, 0)
    assert sound(queue, world)


def test_a_queue_with_an_overflow_is_never_empty(open_queue: OpenQueue, world: World) -> None:
    """One at a time, without acks: each read lets the next one in."""
    queue = open_queue(streams=12, streams_per_shard=3, window=1)
    ids = flood(queue, "flood", 60)
    assert {queue.read().message_id for _ in ids} == set(ids)
    assert queue.read_many(1) == []
    assert queue.stats().in_flight == 60
    assert sound(queue, world)


def test_what_is_held_back_keeps_deadline_headers_and_dedup_key(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    flood(queue, "t", EIGHT)
    first = queue.write("x", shard_key="t", headers={"a": "1"}, dedup_key="k")
    late = queue.write("y", shard_key="t", deadline=600)
    assert queue.write("x", shard_key="t", dedup_key="k") == first
    assert queue.stats().held_back == 2
    found = {each.message_id: each for each in drained(queue)}
    assert found[first].headers == {"a": "1"}
    assert found[late].payload == "y"
    assert sound(queue, world)


def test_what_expires_while_it_is_held_back_keeps_nobody_waiting(open_queue: OpenQueue, world: World) -> None:
    """One read passes over all of it, straight from the overflow or from the line."""
    for batch in (1, 50):
        queue = open_queue(streams=4, streams_per_shard=2, window=1)
        queue.write_many([Message(n, "t", deadline=0.05 if n < 60 else None) for n in range(-EIGHT, 62)])
        eventually(partial(older_than, queue, 0.06))
        live = [each for _ in range(12) for each in queue.read_many(batch)]
        assert [each.payload for each in live] == [60, 61]
        assert sound(queue, world)
        assert queue.ack_many(live) == []
    assert (queue.len(), queue.stats().expired) == (0, 2 * (60 + EIGHT))
    assert sound(queue, world)


def acked(queue: Queue, times: int) -> Counter[object]:
    """Whose messages so many single reads brought, each acked at once."""
    found: Counter[object] = Counter()
    for _ in range(times):
        delivery = queue.read()
        delivery.ack()
        found[delivery.shard_key] += 1
    return found


def test_who_waited_while_others_were_served_catches_up(open_queue: OpenQueue) -> None:
    """One of two floods has a long job: when it is done, that one has received less, and comes first for as long."""
    queue = open_queue(streams=4, streams_per_shard=2, fair="messages")
    queue.write_many([(number, key) for number in range(60) for key in ("long", "short")])
    held = {each.shard_key: each for each in queue.read_many(2)}
    held["short"].ack()
    for _ in range(16):
        delivery = queue.read()
        assert delivery.shard_key == "short", "the other has one in flight"
        delivery.ack()
    held["long"].ack()
    assert acked(queue, 12)["long"] >= 11


@pytest.mark.parametrize("limits", [Limits(), Limits(max_in_flight=1), Limits(rate=1000)], ids=str)
def test_who_was_paused_has_no_credit_for_that_time(open_queue: OpenQueue, limits: Limits) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, fair="messages")  # turns, however long a busy machine takes
    queue.write_many([(number, key) for number in range(90) for key in ("paused", "busy", "other")])
    queue.set_limits({"paused": limits})
    acked(queue, 9)
    queue.pause("paused")
    assert acked(queue, 60)["paused"] == 0
    queue.resume("paused")
    found = acked(queue, 30)
    assert all(8 <= found[key] <= 12 for key in ("paused", "busy", "other")), found


def test_what_comes_due_takes_its_place_among_what_is_held_back(open_queue: OpenQueue, world: World) -> None:
    """It was written between others of one call, so it comes between them, and each can be cancelled."""
    queue = open_queue(streams=4, streams_per_shard=1, window=1)
    ids = queue.write_many([Message(n, "t", delay=0.02 if n in (20, 21) else None) for n in range(40)])
    # it is due after the others were written, so it comes after them
    eventually(lambda: queue.stats().delayed == 0, what="no delayed message")
    first = queue.read()
    assert (first.payload, queue.stats().held_back) == (0, 39)
    assert sound(queue, world)
    assert [queue.cancel(ids[n]) for n in (30, 21, 10)] == ["removed"] * 3
    assert sound(queue, world)
    rest = [n for n in range(1, 40) if n not in (10, 20, 21, 30)]
    assert [each.payload for each in drained(queue)] == [*rest, 20]


def test_what_dies_and_is_redriven_passes_a_full_window(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, max_deliveries=2)
    ids = flood(queue, "t", 30)
    while batch := queue.read_many(12):
        assert queue.nack_many(batch, error="no") == []
        assert sound(queue, world)
    letters = queue.dead(100)
    assert sorted(each.message_id for each in letters) == sorted(ids)
    later = flood(queue, "t", 20)
    assert queue.redrive(letters) == 30
    assert queue.stats().held_back == 50 - EIGHT
    assert sound(queue, world)
    assert sorted(each.message_id for each in drained(queue)) == sorted(ids + later)
    assert sound(queue, world)


@pytest.mark.once
@pytest.mark.parametrize("parents", [0, 1])
def test_shard_keys_may_be_any_bytes(open_queue: OpenQueue, world: World, parents: int) -> None:
    """Zero bytes, separators of the accounts, no text at all, as long as they may be."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=parents)
    keys: list[str | bytes] = [
        "\x00", "\x00\x00", b"\xff/\x00", "a:b", "a:b;", "1:a", "/", "//", "a/", " ", "t1:a", "%s", "e\u0301\U0001f600",
        b"\xfe" * 1024, "a" * 1024, "a" * 1023,
    ]  # fmt: skip
    ids = queue.write_many([(n, key) for n in range(12) for key in keys])
    queue.write_many([Message(n, key, delay=50) for n in range(2) for key in keys])
    world.elapse(queue, 60)
    assert sound(queue, world)
    assert queue.cancel(ids[-1]) == "removed"
    batch = queue.read_many(30)
    assert queue.nack_many(batch[:10]) == []
    assert queue.ack_many(batch[10:20]) == []
    world.elapse(queue, 60)
    assert sound(queue, world)
    found = drained(queue)
    assert {each.shard_key for each in found} == set(keys)
    assert len(found) == 14 * len(keys) - 11
    assert sound(queue, world)


def test_what_is_held_back_can_be_cancelled_and_purged(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    ids = flood(queue, "t", 20)
    assert [queue.cancel(ids[19]), queue.cancel(ids[0]), queue.cancel(ids[10])] == ["removed"] * 3
    assert (queue.len(), queue.stats().held_back) == (17, 17)  # one was let in for the first
    assert sound(queue, world)
    assert queue.purge() == 17
    assert (queue.len(), queue.stats().held_back) == (0, 0)
    assert sound(queue, world)


def test_what_is_given_back_comes_before_what_is_held_back(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=1, window=1)
    ids = flood(queue, "t", 20)
    batch = queue.read_many(EIGHT)
    assert queue.nack_many(batch) == []
    assert sound(queue, world)
    again = [queue.read() for _ in range(2 * EIGHT)]
    assert {each.message_id for each in again} >= set(ids[:EIGHT])
    assert Counter(each.count for each in again) == {1: EIGHT, 2: EIGHT}
    assert sound(queue, world)


def test_leases_that_end_and_delays_that_come_due_count_again(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    flood(queue, "t", 12)
    queue.write_many([Message(n, "t", delay=60) for n in range(12)])
    queue.read_many(6, visibility_timeout=60)
    world.elapse(queue, 60)
    queue.read().ack()
    assert sound(queue, world)
    assert len(drained(queue)) == 23
    assert sound(queue, world)


def test_resizing_and_switching_the_window_strand_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    flood(queue, "a", 30)
    queue.resize(2)
    flood(queue, "b", 30)
    queue.configure(window=0)
    flood(queue, "a", 10, first=30)
    assert sound(queue, world)
    queue.resize(5)
    queue.configure(window=2)
    flood(queue, "c", 30)
    assert sound(queue, world)
    assert len(drained(queue)) == 100
    assert (queue.len(), queue.stats().held_back) == (0, 0)
    assert sound(queue, world)


@pytest.mark.everywhere
def test_a_cap_bounds_what_a_shard_key_has_in_flight_and_blocks_nobody(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, max_in_flight=3)
    flood(queue, "capped", 20)
    flood(queue, "other", 2)
    held = queue.read_many(20)
    assert Counter(each.shard_key for each in held) == {"capped": 3, "other": 2}
    assert queue.read_many(5) == []
    assert sound(queue, world)
    next(each for each in held if each.shard_key == "capped").ack()
    assert queue.read().shard_key == "capped"
    assert queue.read_many(5) == []
    assert sound(queue, world)


@pytest.mark.parametrize(("keys", "cap", "batch"), [(10, 3, 60), (50, 2, 50)])
def test_a_cap_holds_in_batches(open_queue: OpenQueue, world: World, keys: int, cap: int, batch: int) -> None:
    """Also for what a batch takes straight out of overflows."""
    queue = open_queue(streams=16, streams_per_shard=4, window=1, max_in_flight=cap)
    queue.write_many([((key, number), key) for number in range(5) for key in KEYS[:keys]])
    found: list[Delivery] = []
    while some := queue.read_many(batch):
        found += some
    assert Counter(Counter(each.shard_key for each in found).values()) == {cap: keys}
    assert queue.ack_many(found) == []
    assert sorted(each.payload for each in found + drained(queue)) == sorted(
        [key, number] for number in range(5) for key in KEYS[:keys]
    )
    assert sound(queue, world)


def test_a_full_backlog_refuses_its_shard_key_only(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, max_backlog=5)
    flood(queue, "full", 5)
    with pytest.raises(QueueFull, match="'full' has max_backlog = 5"):
        queue.write(1, shard_key="full")
    with pytest.raises(PartlyWritten) as caught:
        queue.write_many([(1, "full"), (2, "other"), (3, "full"), (4, "other")])
    assert [isinstance(each, str) for each in caught.value.results] == [False, True, False, True]
    assert queue.len() == 7
    queue.read()
    assert sound(queue, world)


def test_what_is_delayed_counts_in_the_backlog(open_queue: OpenQueue, world: World) -> None:
    """It takes memory as any other: also what a nack delays, which never fails, but leaves no room for a write."""
    queue = open_queue(streams=4, streams_per_shard=2, max_backlog=5)

    def room(key: str) -> int:
        try:
            ids: list[str] = [
                *queue.write_many([Message(number, key, delay=50 if number % 2 else None) for number in range(9)])
            ]
        except PartlyWritten as error:
            ids = [each for each in error.results if isinstance(each, str)]
        assert sound(queue, world)
        for each in ids:
            assert queue.cancel(each) == "removed"
        assert sound(queue, world)
        return len(ids)

    ids = queue.write_many([Message(number, "t", delay=50) for number in range(3)])
    assert (room("t"), room("other")) == (2, 5)
    queue.cancel(ids[0])
    assert room("t") == 3
    world.elapse(queue, 60)
    assert queue.read_many(1) != []
    assert room("t") == 4
    held = queue.read_many(9)
    assert room("t") == 5
    assert queue.nack_many(held, delay=50) == []
    assert room("t") == 4
    # As if written one by one: the first takes the last place, and the others repeat it.
    same = queue.write_many([Message(number, "t", delay=50, dedup_key="same") for number in range(9)])
    assert len({*same}) == 1
    with pytest.raises(PartlyWritten):
        queue.write_many([Message(number, "t", delay=50, dedup_key=f"other {number}") for number in range(9)])
    queue.purge()
    assert room("t") == 5
    queue.write_many([Message(number, "t", delay=50, dedup_key="twice") for number in range(5)])
    assert room("t") == 4


def test_a_message_that_waits_for_room_counts_in_the_backlog_and_is_not_refused(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, max_backlog=4, max_dead=1)
    flood(queue, "t", 4)
    assert queue.reject_many(queue.read_many(4), "no") == []
    assert sound(queue, world)
    assert (queue.stats().dead, queue.stats().delayed) == (1, 3)
    flood(queue, "t", 1)
    with pytest.raises(QueueFull):
        queue.write(1, shard_key="t")
    world.elapse(queue, 10)
    assert len(queue.read_many(9)) == 1
    assert sound(queue, world)


def test_a_tenant_cannot_win_by_splitting_itself(open_queue: OpenQueue, world: World) -> None:
    """Its children count as one, and take turns within its turns: who has one in flight comes after the others."""
    queue = open_queue(streams=16, streams_per_shard=2, window=1, parents=1)
    for n in range(EIGHT):
        flood(queue, f"other-{n}", 5)
    flood(queue, "acct-7/one", 30)
    for n in range(2, 12):
        flood(queue, f"acct-7/{n}", 3)
    held = [str(each.shard_key) for each in (queue.read() for _ in range(2 * EIGHT + 4))]
    assert sum(1 for key in held if key.startswith("acct-7/")) <= 4
    assert sound(queue, world)
    order = [str(each.shard_key) for each in drained(queue) if str(each.shard_key).startswith("acct-7/")]
    assert {*held, *order[:20]} >= {f"acct-7/{n}" for n in range(2, 12)}
    assert sound(queue, world)


def test_messages_deleted_by_hand_hold_nothing_back_for_ever(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    flood(queue, "t", 30)
    for number in range(4):
        world.raw.xtrim(queue.state.keys.stream(number), maxlen=0)
    found = drained(queue)
    assert len(found) == 30 - EIGHT
    assert (queue.len(), queue.stats().vanished) == (0, EIGHT)


@pytest.mark.once
@pytest.mark.parametrize("walk", range(6))
def test_whatever_happens_the_accounts_are_a_full_count(
    open_queue: OpenQueue, world: World, real: None, rng: random.Random, walk: int
) -> None:
    """A random walk over all that a queue can do, counted after each step; at its end nothing is left or lost."""
    ops = RandomOps(open_queue, world, random.Random(rng.random() + walk))
    for _ in range(100):
        ops.step()
        assert sound(ops.queue, world), ops.log[-8:]
    assert ops.remaining() == set()
    assert sound(ops.queue, world)


def none_blocks_another(queue: Queue, world: World, field: str, spoiled: str) -> None:
    flood(queue, "flood", 20)
    world.raw.hset(queue.state.keys.meta, field, spoiled)
    written = [*flood(queue, "quiet", 3), queue.write(b"", shard_key="quiet")]
    queue.configure(window=2)
    queue.set_weights({"flood": 2})
    found = [each.message_id for each in drained(queue) if each.shard_key == "quiet"]
    assert found == written


@pytest.mark.once
@pytest.mark.parametrize("spoiled", ["x", "-1 0", "0 0", "0 -5", "7 9"])
@pytest.mark.parametrize("field", ["sum", "t:flood"])
def test_accounts_that_somebody_spoiled_block_nobody(
    open_queue: OpenQueue, world: World, field: str, spoiled: str
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    none_blocks_another(queue, world, field, spoiled)


@pytest.mark.parametrize("window", [1, 3])
def test_batches_keep_the_order_of_each_shard_key(open_queue: OpenQueue, seed: int, window: int) -> None:
    """What was held back and let in has its place among what was written into the stream later."""
    rng = random.Random(seed)
    queue = open_queue(streams=1, streams_per_shard=1, window=window)
    written, came = 0, dict[str, list[int]]()
    for _ in range(60):
        for _ in range(rng.randint(1, 4)):
            key, count = rng.choice("aabcdefgh"), rng.randint(1, 4)
            queue.write_many([(written + number, key) for number in range(count)])
            written += count
        found = queue.read_many(rng.choice((1, 2, 3, 5, 12)))
        for delivery in found:
            came.setdefault(str(delivery.shard_key), []).append(delivery.payload)
        assert queue.ack_many(found) == []
    assert {key: sorted(numbers) for key, numbers in came.items()} == came
