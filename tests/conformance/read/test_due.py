"""What comes due in masses: nobody waits behind it, a call takes a bounded part of it, and it comes back in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from shardq import Client, Delivery, Message, Queue
from shardq.ops.read.give_back import recover
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

FLOOD = 1500
MAX_TAKEN_BACK = 16
"""A call that delivers anything takes back at most so many."""
SHARE = 7
"""And it takes back so many at least, if they are due."""
Mass = Callable[[Queue], None]


def delayed(queue: Queue) -> None:
    """A flood's messages and then a quiet tenant's wait for their time."""
    queue.write_many([Message(number, "flood", delay=50) for number in range(FLOOD)])
    queue.write("quiet", shard_key="quiet", delay=50)


def in_flight(queue: Queue) -> None:
    """A flood's messages and then a quiet tenant's are held."""
    queue.write_many([(number, "flood") for number in range(FLOOD)])
    held = [each for _ in range(3) for each in queue.read_many(1000, visibility_timeout=50)]
    queue.write("quiet", shard_key="quiet")
    assert len(held + queue.read_many(1, visibility_timeout=50)) == FLOOD + 1


def give_back(queue: Queue) -> None:
    """A flood's messages failed and then a quiet tenant's, and are to come again later."""
    queue.write_many([(number, "flood") for number in range(FLOOD)])
    held = [each for _ in range(3) for each in queue.read_many(1000)]
    queue.nack_many(held, delay=50)
    queue.write("quiet", shard_key="quiet")
    queue.read().nack(delay=50)


MASSES = (delayed, in_flight, give_back)


@pytest.mark.once
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("batch", [1, 100])
def test_a_quiet_tenants_due_message_waits_for_no_flood_that_was_due_before(
    real: None, world: World, open_queue: OpenQueue, mass: Mass, batch: int
) -> None:
    """Ideally it is the second: three times that is promised. A batch leaves at once, with one message of the flood."""
    queue = open_queue(streams=64, streams_per_shard=6, window=1)
    mass(queue)
    world.elapse(queue, 60)
    before = 0
    found = queue.read_many(batch)
    while "quiet" not in {each.shard_key for each in found}:
        before += len(found)
        found = queue.read_many(batch)
    assert before <= (6 if batch == 1 else 1)


@pytest.mark.once
@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("mass", MASSES)
def test_a_call_takes_a_bounded_part_of_what_is_due_and_few_calls_take_all(
    real: None, world: World, open_queue: OpenQueue, mass: Mass, window: int
) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=window)  # so few that a read misses none
    mass(queue)
    world.elapse(queue, 60)
    left = due_count(world, queue)
    assert left == FLOOD + 1
    for _ in range((FLOOD + 1) // SHARE + 2):
        queue.read(visibility_timeout=600)
        if mass is not in_flight:  # these are taken back whole before anything is delivered, by several calls
            assert left - due_count(world, queue) <= MAX_TAKEN_BACK
        left = due_count(world, queue)
    assert left == 0
    assert world.census(queue).problems() == []


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_every_shard_key_has_its_turn_however_many_are_due(real: None, world: World, open_queue: OpenQueue) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.write_many([Message("x", f"tenant-{number % 600}", delay=50) for number in range(2400)])
    world.elapse(queue, 60)
    before = delayed_of_each(world, queue)
    reads = len(before) // 16 + 1
    assert reads > 20
    for _ in range(reads):
        queue.read()
    after = delayed_of_each(world, queue)
    assert all(after[key] < before[key] for key in before)
    assert len(read_all(queue, 1000)) == 2400 - reads
    assert not delayed_of_each(world, queue)


def delayed_of_each(world: World, queue: Queue) -> Counter[bytes]:
    """How many delayed messages each shard key has."""
    members = [member for member in world.raw.zrange(queue.state.keys.delayed, 0, -1) if member]
    return Counter(member.split(b":")[1] for member in members)


def due_count(world: World, queue: Queue) -> int:
    """How many entries of the timed indexes are due."""
    keys = queue.state.keys
    now = round(queue.stats().time * 1000)
    members = [member for member in world.raw.zrange(keys.delayed, 0, -1) if member]
    due = sum(int(member.split(b":")[2]) <= now for member in members)
    return due + int(world.raw.zcount(keys.leases, "-inf", now))


def lost(queue: Queue, client: Client, deliveries: list[Delivery]) -> None:
    """The replies were lost that brought these."""
    for holder in dict.fromkeys(each.received.token.split(":")[3] for each in deliveries):
        client.run(recover(queue.state, Outstanding(holder, 0, 600_000), queue.state.until()))


@pytest.mark.once
@pytest.mark.parametrize("end", ["lost", "nacked", "ended", "delayed"])
@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize("key", ["tenant", None])
def test_what_comes_again_comes_in_the_order_of_writing(
    real: None,
    world: World,
    client: Client,
    open_queue: OpenQueue,
    end: str,
    window: int,
    size: int,
    key: str | None,
) -> None:
    """As text, 10 and 100 come before 2. However many come due, they come back in the order of their times."""
    queue = open_queue(streams=1, streams_per_shard=1, window=window)
    names = [key or f"tenant-{number % 3}" for number in range(120)]
    ids = queue.write_many(list(enumerate(names)))
    if end == "ended":
        held = [queue.read(visibility_timeout=600 + nth / 100) for nth in range(120)]  # no two end in one ms
    else:
        held = read_all(queue, 25)
    assert Counter(each.message_id for each in held) == Counter(ids)
    if end == "lost":
        lost(queue, client, held)
    elif end == "nacked":
        queue.nack_many(held)
    elif end == "ended":
        world.elapse(queue, 700)
    else:
        for nth, each in enumerate(held):
            each.nack(delay=50 + nth / 100)  # no two are due in one ms
        world.elapse(queue, 60)
    again = read_all(queue, size)
    assert_order(again, ids)
    assert {each.count for each in again} == {1 if end == "lost" else 2}
    assert world.census(queue).problems() == []


@pytest.mark.once
@pytest.mark.parametrize("end", ["ended", "delayed"])
@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize("key", ["tenant", None])
def test_what_comes_due_in_one_ms_comes_in_the_order_of_writing_if_one_call_takes_it_back(
    real: None, world: World, open_queue: OpenQueue, end: str, window: int, size: int, key: str | None
) -> None:
    """So 25 do, which every call may take. Of more, calls take parts, and which ones is not promised within a ms."""
    queue = open_queue(streams=1, streams_per_shard=1, window=window)
    ids = queue.write_many([(number, key or f"tenant-{number % 3}") for number in range(25)])
    held = queue.read_many(25, visibility_timeout=600)
    if end == "delayed":
        queue.nack_many(held, delay=50)
    world.elapse(queue, 700)
    assert_order(read_all(queue, size), ids)
    assert world.census(queue).problems() == []


def assert_order(again: list[Delivery], ids: Sequence[str]) -> None:
    """Each message came once; those of each shard key in the order of *ids*."""
    place = {message_id: nth for nth, message_id in enumerate(ids)}
    places = [place[each.message_id] for each in again]
    assert sorted(places) == list(range(len(ids)))
    for name in {each.shard_key for each in again}:
        own = [place[each.message_id] for each in again if each.shard_key == name]
        assert own == sorted(own)


def read_all(queue: Queue, size: int) -> list[Delivery]:
    """All that is deliverable, so many at a time."""
    found: list[Delivery] = []
    while batch := queue.read_many(size, visibility_timeout=600):
        found += batch
    return found


def test_first_deliveries_come_in_order_beside_others_that_were_lost_before(
    client: Client, open_queue: OpenQueue
) -> None:
    queue = open_queue(streams=1, streams_per_shard=1, window=1)
    ids = queue.write_many([(number, "t") for number in range(15)])
    lost(queue, client, queue.read_many(12, visibility_timeout=600))
    assert [queue.read().message_id for _ in range(15)] == ids


def test_a_large_read_brings_all_that_is_there(world: World, open_queue: OpenQueue) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    ids = queue.write_many([(number, f"t{number % 7}") for number in range(2 * MAX_PER_CALL + 50)])
    assert {each.message_id for each in queue.read_many(1000)} == set(ids)
    world.elapse(queue, 60)
    assert {each.message_id for each in queue.read_many(1000)} == set(ids)


@pytest.mark.once
def test_a_large_read_that_waited_brings_all_that_came_at_once(
    real: None, client: Client, open_queue: OpenQueue
) -> None:
    queue = open_queue(streams=8, streams_per_shard=2)
    queue.write_many([Message(number, f"t{number % 7}", delay=0.5) for number in range(2 * MAX_PER_CALL + 50)])
    assert len(queue.read_many(1000, block=20)) >= MAX_PER_CALL


def test_a_reader_has_a_lease_that_ended_at_once_also_with_a_window(
    real: None, open_queue: OpenQueue, patient: Client
) -> None:
    """Should nobody tell it when the lease of a bucket ends, it would wait until its time is up, and find nothing."""
    queue = open_queue(by=patient, streams=4, streams_per_shard=2, window=1)
    queue.write("x", shard_key="tenant")
    queue.read(visibility_timeout=0.3)
    assert queue.read(block=30).count == 2


def test_a_lease_that_is_shortened_ends_when_it_says(world: World, open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.write("x", shard_key="tenant")
    queue.read(visibility_timeout=600).extend(10)
    assert world.census(queue).problems() == []
    world.elapse(queue, 20)
    assert queue.read().count == 2


@pytest.mark.once
def test_what_dies_in_a_mass_hides_nothing_that_is_due_behind_it(world: World, open_queue: OpenQueue) -> None:
    """A call takes back a part of it and delivers nothing. Another one follows before the reader has an answer."""
    queue, doomed = open_queue(streams=4, window=0), 4 * MAX_TAKEN_BACK
    queue.write_many([(number, "flood") for number in range(doomed)])
    queue.nack_many(queue.read_many(doomed))
    queue.nack_many(queue.read_many(doomed), delay=50)
    queue.configure(max_deliveries=2)
    queue.write("due last", shard_key="quiet", delay=52)
    world.elapse(queue, 60)

    assert [each.payload for each in queue.read_many(1)] == ["due last"]
    while queue.read_many(1):  # it takes turns with those that are to die
        pass
    assert queue.stats().dead == doomed


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_what_came_due_and_finds_no_room_comes_with_later_reads(
    real: None, world: World, open_queue: OpenQueue
) -> None:
    """New messages come first, and as long as they fill the batches, others come back into the queue."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    old = queue.write_many([(number, f"old{number % 30}") for number in range(300)])
    assert len(queue.read_many(300, visibility_timeout=50)) == 300
    new = queue.write_many([(number, f"new{number % 30}") for number in range(300)])
    world.elapse(queue, 60)
    found: list[str] = []
    while batch := queue.read_many(20, visibility_timeout=600):
        found += [each.message_id for each in batch]
        assert world.census(queue).problems() == []
    assert Counter(found) == Counter(old + new)
    assert set(found[:200]) & set(old)
    assert set(found[:200]) & set(new)


@pytest.mark.once
def test_leases_that_ended_and_delays_that_are_over_share_the_calls(
    real: None, world: World, open_queue: OpenQueue
) -> None:
    """However many leases ended, what was delayed comes beside them."""
    queue = open_queue(streams=8, streams_per_shard=2, window=0)
    queue.write_many([(number, "held") for number in range(500)])
    assert len(queue.read_many(500, visibility_timeout=50)) == 500
    queue.write_many([Message(number, "delayed", delay=55) for number in range(100)])
    world.elapse(queue, 60)
    found = [each.shard_key for _ in range(8) for each in queue.read_many(32)]
    assert found.count("delayed") == 100
    assert len(found) == 256


@pytest.mark.once
def test_what_came_due_keeps_within_the_cap(real: None, world: World, open_queue: OpenQueue) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1, max_in_flight=3)
    queue.write_many([(number, f"t{number % 10}") for number in range(200)])
    for _ in range(6):
        in_flight = queue.read_many(100, visibility_timeout=50)
        assert Counter(each.shard_key for each in in_flight) == {f"t{number}": 3 for number in range(10)}
        assert queue.read_many(100) == []
        world.elapse(queue, 60)
        assert world.census(queue).problems() == []
    queue.configure(max_in_flight=0)
    world.elapse(queue, 60)
    assert len(read_all(queue, 50)) == 200


@pytest.mark.once
def test_what_came_due_out_of_a_stream_that_is_not_declared_comes_with_the_next_read(
    real: None, world: World, open_queue: OpenQueue
) -> None:
    queue = open_queue(streams=256, streams_per_shard=2, window=1)
    ids = queue.write_many([(number, f"t{number}") for number in range(400)])
    assert len(read_all(queue, 1000)) == 400
    world.elapse(queue, 700)
    found: list[Delivery] = []
    while batch := queue.read_many(20, visibility_timeout=600):
        found += batch
        assert world.census(queue).problems() == []
    assert Counter(each.message_id for each in found) == Counter(ids)


@pytest.mark.once
def test_what_came_due_and_died_or_expired_or_was_cancelled_is_not_delivered(
    real: None, world: World, open_queue: OpenQueue
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, max_deliveries=2)
    ids = queue.write_many([Message(number, f"t{number % 5}", deadline=100) for number in range(60)])
    assert len(queue.read_many(60, visibility_timeout=50)) == 60
    assert [queue.cancel(each) for each in ids[:10]] == ["in flight"] * 10
    world.elapse(queue, 60)
    again = queue.read_many(30, visibility_timeout=50)
    assert len(again) == 30
    assert not {each.message_id for each in again} & set(ids[:10])
    world.elapse(queue, 60)
    rest = queue.read_many(60, visibility_timeout=50)  # those that were delivered twice are dead
    assert {each.message_id for each in rest} == set(ids[10:]) - {each.message_id for each in again}
    assert queue.stats().dead == 30
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_leases_granted_beside_a_message_that_waits_for_room_are_due(world: World, open_queue: OpenQueue) -> None:
    """A batch grants a lease, finds no room for a dead letter, and then finds an ended lease."""
    queue = open_queue(streams=1, streams_per_shard=1, window=1, max_deliveries=9, max_dead=1)
    queue.write("ended", shard_key="t")
    queue.read(visibility_timeout=50)
    queue.write_many([(number, "t") for number in range(3)])
    queue.nack_many(queue.read_many(3))
    failed = queue.read_many(3)
    queue.write("new", shard_key="t")
    queue.nack_many(failed)
    queue.configure(max_deliveries=2)
    world.elapse(queue, 60)
    found = [each.payload for each in queue.read_many(20, visibility_timeout=600)]
    assert sorted(found) == ["ended", "new"]
    assert (queue.stats().dead, queue.stats().delayed) == (1, 2)
    assert world.census(queue).problems() == []
