"""unique_key: one message until it is done, whatever ends it; and what a write does about one that has its key."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import ConfigError, Limits, Message, PartlyWritten, Queue, QueueFull, UniqueConflict
from shardq.model.message import OnConflict
from shardq.model.written import Existing
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained
from tests.waiting import eventually

SETTINGS: list[dict[str, Any]] = [
    {"window": 0},
    {"window": 1, "key_scope": "queue"},
    {"parents": 1, "max_in_flight": 5, "journal": 1000},
    {"rate": 1000},
]

MODES: tuple[OnConflict, ...] = ("existing", "raise", "replace")


@pytest.fixture(params=SETTINGS, ids=str)
def queue(request: pytest.FixtureRequest, open_queue: OpenQueue) -> Queue:
    """A queue of each kind."""
    return open_queue(streams=4, streams_per_shard=2, max_deliveries=3, **request.param)


def write(queue: Queue, payload: object, on_conflict: OnConflict = "existing", delay: float | None = None) -> str:
    """With the unique key k."""
    return queue.write(payload, shard_key="a/b", unique_key="k", on_conflict=on_conflict, delay=delay)


def conflict(queue: Queue) -> str:
    """Who has the unique key, as a writer is told."""
    with pytest.raises(UniqueConflict, match="unique_key 'k'") as told:
        write(queue, "in the way", "raise")
    return told.value.message_id


def payloads(queue: Queue) -> list[object]:
    """All that is delivered, acked: under a cap, some after the other."""
    every: list[object] = []
    while found := drained(queue):
        assert queue.ack_many(found) == []
        every += [each.payload for each in found]
    return every


def sound(queue: Queue, world: World) -> None:
    """The queue's own numbers are a full count."""
    census = world.census(queue)
    assert census.problems() == []
    assert queue.stats().backlog == census.backlog


@pytest.mark.everywhere
@pytest.mark.parametrize("delay", [None, 60])
def test_a_second_write_returns_the_first_ones_id(queue: Queue, world: World, delay: float | None) -> None:
    first = write(queue, "first", delay=delay)
    assert write(queue, "second") == first
    assert conflict(queue) == first
    other = world.client().queue(queue.name)
    assert write(other, "fourth") == first
    assert queue.write("another", shard_key="a/b", unique_key="l") != first
    stats = queue.stats()
    assert (stats.backlog + stats.delayed, stats.written) == (2, 2)
    sound(queue, world)
    world.elapse(queue, 60)
    assert sorted(map(str, payloads(queue))) == ["another", "first"]


def test_a_message_in_flight_still_has_its_key(queue: Queue, world: World) -> None:
    first = write(queue, "first")
    delivery = queue.read(visibility_timeout=20)
    assert write(queue, "second") == conflict(queue) == first
    world.elapse(queue, 30)
    assert write(queue, "second") == first  # its lease has ended, and it will be delivered again
    with pytest.raises(Exception, match="lease"):
        delivery.ack()
    again = queue.read()
    assert (again.payload, again.count) == ("first", 2)
    again.ack()
    assert write(queue, "third") != first


def _acked(queue: Queue, _: World) -> None:
    queue.read().ack()


def _acked_together(queue: Queue, _: World) -> None:
    assert queue.ack_many(queue.read_many(1)) == []


def _rejected(queue: Queue, _: World) -> None:
    queue.read().reject("bad")


def _buried(queue: Queue, _: World) -> None:
    for _again in range(3):
        queue.read().nack()


def _cancelled(queue: Queue, _: World) -> None:
    assert queue.cancel(write(queue, "who has it?")) == "removed"


def _cancelled_in_flight(queue: Queue, _: World) -> None:
    delivery = queue.read()
    assert queue.cancel(delivery.message_id) == "in flight"


def _purged(queue: Queue, _: World) -> None:
    assert queue.purge() == 1


def _left_by_its_last_consumer(queue: Queue, _: World) -> None:
    """Each lease ends by itself, the last one, too: the read that finds it over makes a dead letter of the message."""
    eventually(lambda: queue.read_many(1, visibility_timeout=0.05) == [] and queue.stats().dead == 1)


def listed(queue: Queue, world: World) -> tuple[set[bytes], set[bytes]]:
    """The unique keys that are stored, and those that somebody will look at again."""
    keys = queue.state.keys
    stored, to_look_at = world.raw.hkeys(keys.dedup), world.raw.zrange(keys.dedup_index, 0, -1)
    return (
        {each for each in stored if each.startswith(b"u:")},
        {each for each in to_look_at if each.startswith(b"u:")},
    )


@pytest.mark.parametrize(
    "end",
    [
        _acked,
        _acked_together,
        _rejected,
        _buried,
        _left_by_its_last_consumer,
        _cancelled,
        _cancelled_in_flight,
        _purged,
    ],
    ids=lambda each: each.__name__,
)
def test_every_end_frees_the_key(queue: Queue, world: World, end: Callable[[Queue, World], None]) -> None:
    first = write(queue, "first")
    end(queue, world)
    second = write(queue, "second")
    assert second != first
    assert conflict(queue) == second
    if letters := queue.dead():  # what comes back does not have its key any more
        assert queue.redrive(letters) == 1
        assert conflict(queue) == second
    sound(queue, world)
    assert "second" in payloads(queue)


def test_a_message_that_dies_when_its_last_lease_ends_leaves_no_key(queue: Queue, world: World) -> None:
    write(queue, "first")
    _left_by_its_last_consumer(queue, world)
    assert listed(queue, world) == (set(), set())


def test_a_deadline_frees_the_key(queue: Queue) -> None:
    first = queue.write("first", shard_key="a/b", unique_key="k", deadline=0.001)
    written = int(first.partition("-")[0]) / 1000
    eventually(lambda: queue.stats().time > written + 0.002)
    assert drained(queue) == []
    assert write(queue, "second") != first


@pytest.mark.everywhere
def test_a_waiting_message_is_replaced(queue: Queue, world: World) -> None:
    first = write(queue, "first")
    for number in range(5):
        assert write(queue, number, "replace") == first
        sound(queue, world)
    assert queue.status(first).state == "waiting"
    delivery = queue.read()
    assert (delivery.payload, delivery.message_id, delivery.count) == (4, first, 1)
    assert queue.stats().written == 1
    delivery.ack()
    assert write(queue, "second", "replace") != first
    sound(queue, world)


def test_a_replaced_message_keeps_its_place(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, streams_per_shard=1, window=1)
    queue.write_many([Message(number, "t", unique_key=str(number)) for number in range(20)])
    busy = queue.read()  # from now on the others wait in the overflow
    for number in range(0, 20, 3):
        queue.write(100 + number, shard_key="t", unique_key=str(number), on_conflict="replace")
    sound(queue, world)
    assert busy.payload == 0
    order = [each.payload for each in drained(queue) if each.message_id != busy.message_id]
    assert [number % 100 for number in order if number != 100] == list(range(1, 20))
    assert {number for number in order if number > 100} == {103, 106, 109, 112, 115, 118}


def test_a_delay_debounces(queue: Queue, world: World) -> None:
    first = write(queue, 0, delay=60)
    for number in range(1, 4):
        world.elapse(queue, 50)
        assert write(queue, number, "replace", delay=60) == first
        assert payloads(queue) == []
        status = queue.status(first)
        assert status.state == "delayed"
        assert status.until is not None
        assert 55 < status.until - status.time <= 60
        sound(queue, world)
    assert write(queue, 4, "replace") == first  # without a delay it comes when it would have
    world.elapse(queue, 30)
    assert payloads(queue) == []
    world.elapse(queue, 31)
    assert payloads(queue) == [4]
    assert write(queue, 5, delay=60) != first
    assert write(queue, 6, "replace", delay=0)
    assert payloads(queue) == [6]


def test_a_waiting_message_can_be_delayed(queue: Queue, world: World) -> None:
    first = write(queue, 0)
    queue.read().nack()  # into a redelivery queue
    assert write(queue, 1, "replace", delay=60) == first
    assert payloads(queue) == []
    sound(queue, world)
    world.elapse(queue, 60)
    delivery = queue.read()
    assert (delivery.payload, delivery.message_id, delivery.count) == (1, first, 2)


def test_a_message_that_was_given_back_is_replaced(queue: Queue, world: World) -> None:
    first = write(queue, 0)
    queue.read().nack(delay=60, error="no")
    assert write(queue, 1, "replace") == first
    world.elapse(queue, 60)
    delivery = queue.read()
    assert (delivery.payload, delivery.count, delivery.last_error) == (1, 2, "no")
    delivery.nack()
    assert write(queue, 2, "replace") == first
    sound(queue, world)
    last = queue.read()
    assert (last.payload, last.count) == (2, 3)
    last.nack()
    assert queue.dead()[0].read_with(queue._codecs).payload == 2
    assert queue.dead()[0].message_id == first


def _written_with_a_delay(queue: Queue, key: str) -> str:
    return queue.write("first", shard_key="a/b", unique_key=key, delay=60)


def _replaced_with_a_delay(queue: Queue, key: str) -> str:
    queue.write("first", shard_key="a/b", unique_key=key)
    return queue.write("again", shard_key="a/b", unique_key=key, on_conflict="replace", delay=60)


def _given_back_with_a_delay(queue: Queue, key: str) -> str:
    first = queue.write("first", shard_key="a/b", unique_key=key)
    queue.read().nack(delay=60, error="no")
    return first


@pytest.mark.parametrize("put_off", [_written_with_a_delay, _replaced_with_a_delay, _given_back_with_a_delay])
@pytest.mark.parametrize("taken_up", [False, True], ids=["nobody looked", "a read took it up"])
@pytest.mark.parametrize("delay", [None, 0, 60])
def test_a_message_that_came_due_is_replaced_where_it_lies(
    queue: Queue, world: World, put_off: Callable[[Queue, str], str], taken_up: bool, delay: float | None
) -> None:
    """It is one message all the time, which can be found: nobody has it."""
    ids = {put_off(queue, key): key for key in "kl"}
    world.elapse(queue, 61)
    if taken_up:  # of two that came due a read takes up both, and delivers one
        del ids[queue.read().message_id]
    first, key = ids.popitem()
    for payload in ("second", "third"):
        again = queue.write(payload, shard_key="a/b", unique_key=key, on_conflict="replace", delay=delay)
        assert (again, again.is_new) == (first, False)
        status = queue.status(first)
        assert status.state in (("delayed",) if delay else ("waiting", "held_back"))
        assert status.holder is None
        sound(queue, world)
    if delay is None:
        assert queue.cancel(first) == "removed"
        assert "third" not in payloads(queue)
    else:
        world.elapse(queue, delay + 1)
        assert payloads(queue).count("third") == 1
    assert queue.write("fourth", shard_key="a/b", unique_key=key).is_new


def test_what_is_in_flight_is_not_replaced_and_the_newest_comes_after_it(queue: Queue, world: World) -> None:
    first = write(queue, "first")
    delivery = queue.read()
    second = write(queue, "second", "replace")
    assert second != first
    assert write(queue, "third", "replace") == second
    assert conflict(queue) == second
    delivery.ack()
    assert conflict(queue) == second
    assert payloads(queue) == ["third"]
    sound(queue, world)


@pytest.mark.everywhere
@pytest.mark.parametrize("on_conflict", MODES)
def test_a_key_belongs_to_its_shard_key(queue: Queue, on_conflict: OnConflict) -> None:
    """Or to all of the queue, if that says so."""
    first = write(queue, "first")
    try:
        other = queue.write("other", shard_key="c/d", unique_key="k", on_conflict=on_conflict)
    except UniqueConflict as conflicted:
        other = Existing(conflicted.message_id)
    is_shared = queue.settings().key_scope == "queue"
    assert (other == first) == is_shared
    assert other.is_new == (not is_shared)
    assert sorted(map(str, payloads(queue))) == (
        (["other"] if on_conflict == "replace" else ["first"]) if is_shared else ["first", "other"]
    )


@pytest.mark.once
def test_two_keys_are_never_spelled_the_same(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    pairs: list[tuple[str | bytes, str]] = [
        ("a", "bk"), ("ab", "k"), ("a", "2:abk"), ("1:a", "bk"), ("1", ":abk"), (b"\xff", "k"),
    ]  # fmt: skip
    ids = [queue.write(0, shard_key=shard_key, unique_key=key, dedup_key=key) for shard_key, key in pairs]
    assert all(each.is_new for each in ids)
    assert len(set(ids)) == len(pairs)


@pytest.mark.everywhere
def test_the_scope_changes_only_while_no_key_is_remembered(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    queue.declare()
    with pytest.raises(ConfigError, match="key_scope must be one of shard_key, queue, not 'tenant'"):
        queue.configure(key_scope="tenant")
    queue.write(1, shard_key="a", dedup_key="k")
    with pytest.raises(ConfigError, match=r"remembers keys, so key_scope cannot change: .*dedup_window"):
        queue.configure(key_scope="queue", max_len=7)
    assert (queue.settings().key_scope, queue.settings().max_len) == ("shard_key", 0)
    queue.configure(key_scope="shard_key", max_len=7)  # which it is
    for field in world.raw.zrange(queue.state.keys.dedup_index, 0, -1):  # the window is over
        world.raw.zadd(queue.state.keys.dedup_index, {field: 1}, xx=True) if field else None
    queue.configure(key_scope="queue")
    other = world.client().queue(queue.name)
    first = other.write(1, shard_key="a", dedup_key="k")
    assert queue.write(2, shard_key="b", dedup_key="k") == first


def test_another_shard_key_takes_it_along(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, key_scope="queue")
    first = write(queue, "first")
    queue.write_many([(number, "a/b") for number in range(20)])
    assert queue.write("moved", shard_key="c/d", unique_key="k", on_conflict="replace") == first
    sound(queue, world)
    shard_keys: dict[object, object] = {}
    while found := drained(queue):
        shard_keys |= {each.payload: each.shard_key for each in found}
        queue.ack_many(found)
    assert shard_keys["moved"] == "c/d"
    assert len(shard_keys) == 21


def test_what_is_held_back_or_paused_is_replaced(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2)
    queue.declare()
    queue.set_limits({"t": Limits(max_in_flight=1)})
    ids = [queue.write(number, shard_key="t", unique_key=str(number)) for number in range(10)]
    assert len(drained(queue)) == 1
    queue.pause("t")
    assert queue.write("new", shard_key="t", unique_key="7", on_conflict="replace") == ids[7]
    assert queue.status(ids[7]).state == "held_back"
    sound(queue, world)
    queue.resume("t")
    queue.set_limits({"t": Limits()})
    assert "new" in payloads(queue)
    sound(queue, world)


def test_a_resize_in_between_strands_nothing(queue: Queue, world: World) -> None:
    first = write(queue, 0)
    other = world.client().queue(queue.name)
    assert write(other, 1, "replace") == first
    queue.resize(1)
    assert write(other, 2, "replace") == first
    queue.resize(8)
    assert write(other, 3, "replace") == first
    assert payloads(queue) == [3]
    sound(queue, world)


def test_a_batch_is_compared_with_itself(queue: Queue, world: World) -> None:
    def each(number: int, key: str, on_conflict: OnConflict) -> Message:
        return Message(number, "t", unique_key=key, on_conflict=on_conflict)

    first, same, newest = queue.write_many(
        [each(1, "a", "existing"), each(2, "a", "existing"), each(3, "a", "replace")]
    )
    assert first == same == newest
    assert [first.is_new, same.is_new, newest.is_new] == [True, False, False]
    with pytest.raises(PartlyWritten) as told:
        queue.write_many([each(4, "b", "raise"), each(5, "b", "raise"), Message(6, "t"), each(7, "a", "raise")])
    stored, second, plain, taken = told.value.results
    assert isinstance(second, UniqueConflict)
    assert isinstance(taken, UniqueConflict)
    assert (second.message_id, taken.message_id) == (stored, first)
    assert isinstance(plain, str)
    sound(queue, world)
    assert sorted(map(str, payloads(queue))) == ["3", "4", "6"]


def test_a_dedup_key_comes_first(queue: Queue) -> None:
    def both(payload: str, dedup_key: str) -> str:
        return queue.write(payload, shard_key="t", unique_key="k", dedup_key=dedup_key)

    first = both("first", "a|b")
    assert both("second", "a|b") == both("third", "c") == first
    queue.read().ack()
    assert both("fourth", "a|b") == both("fifth", "c") == first  # within their window
    assert both("sixth", "d") != first


@pytest.mark.parametrize("key", ["|", "a/e3|x|", "ключ", "x" * 512, "\n", "%s", "u:k"])
def test_any_text_may_be_a_key(open_queue: OpenQueue, key: str) -> None:
    queue = open_queue(streams=4)
    for dedup_key in (None, "d|/", "ключ"):
        first = queue.write(1, shard_key="t", unique_key=key, dedup_key=dedup_key)
        assert queue.write(2, shard_key="t", unique_key=key, on_conflict="replace") == first
        assert queue.write(3, shard_key="t", unique_key=key[:-1] + "z") != first
        assert sorted(each.payload for each in drained(queue)) == [2, 3]
        queue.ack_many([])
        queue.delete(expected=None)
        queue.declare()


def test_bad_arguments_are_told_before_anything_is_written(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    for settings in (
        {"unique_key": ""}, {"unique_key": "x" * 513}, {"unique_key": 7}, {"unique_key": "\ud800"},
        {"unique_key": "k", "on_conflict": "ignore"}, {"on_conflict": "raise"},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"unique_key|on_conflict"):
            queue.write(1, shard_key="t", **settings)
    assert queue.stats().written == 0


def test_unique_keys_are_bounded_with_dedup_keys(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, max_dedup=5)
    for number in range(4):
        queue.write(number, shard_key="t", unique_key=str(number))
    with pytest.raises(QueueFull, match="max_dedup"):
        queue.write(4, shard_key="t", unique_key="4")
    assert queue.write("new", shard_key="t", unique_key="3", on_conflict="existing")
    assert len(payloads(queue)) == 4
    for field in world.raw.zrange(queue.state.keys.dedup_index, 0, -1):  # a minute later
        world.raw.zadd(queue.state.keys.dedup_index, {field: 1}, xx=True) if field else None
    queue.write(6, shard_key="t", unique_key="6")
    kept = [field for field in world.raw.hkeys(queue.state.keys.dedup) if field.startswith(b"u:")]
    assert kept == [b"u:1:t6"]


def test_what_still_waits_is_not_forgotten(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    first = queue.write(1, shard_key="t", unique_key="k")
    keys = queue.state.keys
    world.raw.zadd(keys.dedup_index, {"u:1:tk": 1}, xx=True)
    for number in range(40):
        queue.write(number, shard_key="t", dedup_key=str(number))
    assert queue.write(2, shard_key="t", unique_key="k") == first
    assert world.raw.zscore(keys.dedup_index, "u:1:tk") > 1


def test_who_replaces_without_end_fills_nothing(open_queue: OpenQueue, world: World) -> None:
    """Neither a bound that others need, nor the memory of the server."""
    queue = open_queue(streams=4, max_dedup=10)
    write(queue, "first")
    write(queue, "second", "replace")
    keys = queue.state.keys

    def sizes() -> tuple[int, ...]:
        return *map(world.raw.hlen, (keys.meta, keys.dedup)), *map(world.raw.zcard, (keys.dedup_index, keys.producers))

    before = sizes()
    for number in range(100):
        write(queue, number, "replace")
    assert sizes() == before
    for number in range(7):  # of the ten it has one
        queue.write(number, shard_key="other", dedup_key=str(number))
    assert queue.tenant("a/b").dedup_keys == 1
    assert 99 in payloads(queue)


@pytest.mark.usefixtures("real")
def test_of_many_writers_at_once_one_writes(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, key_scope="queue")
    queue.declare()
    writers = [world.client().queue(queue.name) for _ in range(3)]
    modes: list[OnConflict] = ["existing", "replace"]
    with ThreadPoolExecutor(12) as pool:
        for round_number in range(10):
            ids = list(pool.map(
                lambda at, key=str(round_number): writers[at % 3].write(
                    at, shard_key=f"t{at % 4}", unique_key=key, on_conflict=modes[at % 2]
                ),
                range(24),
            ))  # fmt: skip
            assert len(set(ids)) == 1
    assert queue.stats().written == 10
    assert len(payloads(queue)) == 10
    sound(queue, world)


@pytest.mark.usefixtures("real")
def test_a_blocked_reader_gets_it_at_once(open_queue: OpenQueue, world: World) -> None:
    queue, reader = open_queue(streams=4), world.client()
    queue.declare()
    with ThreadPoolExecutor() as pool:
        for number in range(20):
            found = pool.submit(lambda: reader.queue(queue.name).read(block=60))
            write(queue, number)
            delivery = found.result(30)
            assert delivery.payload == number
            delivery.ack()


@pytest.mark.once
def test_it_is_what_a_dict_says(open_queue: OpenQueue, world: World, seed: int) -> None:
    """Random writes and ends, beside a dict of who has which key."""
    rng = random.Random(seed)
    queue = open_queue(streams=4, streams_per_shard=2, max_deliveries=100, key_scope="queue")
    holders: dict[str, str] = {}
    waiting: dict[str, int] = {}
    for number in range(150):
        key, on_conflict = rng.choice("abcde"), rng.choice(MODES)
        holder = holders.get(key)
        match rng.random():
            case chance if chance < 0.6:
                wanted = rng.choice("xyz")
                if on_conflict == "raise" and holder is not None:
                    with pytest.raises(UniqueConflict, match=holder):
                        queue.write(number, shard_key=wanted, unique_key=key, on_conflict=on_conflict)
                    continue
                message_id = queue.write(number, shard_key=wanted, unique_key=key, on_conflict=on_conflict)
                assert message_id == holder or holder is None
                if holder is None or on_conflict == "replace":
                    waiting[message_id] = number
                holders[key] = message_id
            case chance if chance < 0.9:
                for delivery in queue.read_many(rng.randint(1, 3)):
                    assert waiting[delivery.message_id] == delivery.payload
                    if rng.random() < 0.5:
                        delivery.nack()
                        continue
                    delivery.ack()
                    holders = {each: found for each, found in holders.items() if found != delivery.message_id}
            case _ if holder is not None:
                queue.cancel(holder)
                del holders[key]
    sound(queue, world)
    assert {each.message_id: each.payload for each in drained(queue)} == {
        each: waiting[each] for each in holders.values()
    }
