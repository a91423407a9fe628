"""Readers that wait for limits: each is told when there is something for it, whatever it knew when it blocked."""

from __future__ import annotations

import pytest

from shardq import Client, Limits, Queue
from shardq.ops.read.give_back import unread
from shardq.ops.read.waiting import waiting_of
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_blocking import SLICE, StartReader, blocked, patient, start_reader
from tests.conformance.world import World
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("real")
__all__ = ["patient", "start_reader"]  # fixtures


@pytest.fixture
def queue(open_queue: OpenQueue, patient: Client) -> Queue:
    """A queue whose blocked readers look for themselves once a minute only."""
    queue = open_queue(by=patient, streams=4, streams_per_shard=2, window=1)
    queue.declare()
    return queue


@pytest.mark.parametrize("scope", ["shard key", "every shard key", "queue"])
def test_a_rate_that_is_raised_counts_at_once(
    queue: Queue, world: World, start_reader: StartReader, scope: str
) -> None:
    """What was delivered under the rate before is not to be waited for: at that rate, it would take an hour."""

    def limit(rate: float, burst: int) -> None:
        if scope == "shard key":
            queue.set_limits({"t": Limits(rate=rate, burst=burst)})
        elif scope == "queue":
            queue.configure(total_rate=rate, total_burst=burst)
        else:
            queue.configure(rate=rate, burst=burst)

    limit(0.001, 4)
    queue.write_many([(number, "t") for number in range(8)])
    came = {each.payload for each in queue.read_many(8)}
    assert len(came) == 4
    reader = start_reader(queue)
    blocked(world, queue, 1)
    limit(50, 1)
    came |= {reader.got().payload, queue.read(block=60).payload}
    assert len(came) == 6


def test_a_clock_that_was_set_back_does_not_stop_a_rate(queue: Queue, world: World) -> None:
    """The bucket was emptied an hour from now."""
    queue.set_limits({"t": Limits(rate=1000, burst=1)})
    queue.configure(total_rate=1000, total_burst=1)
    queue.write_many([(number, "t") for number in range(3)])
    first = queue.read()
    later = str((queue.stats().time + 3600) * 1000)
    words = world.raw.hget(queue.state.keys.meta, "t:t").split()
    words[6] = later.encode()
    world.raw.hset(queue.state.keys.meta, "t:t", b" ".join(words))
    world.raw.hset(queue.state.keys.meta, "full_at", later)
    assert queue.read(block=60).payload != first.payload


@pytest.mark.parametrize("place", [5, 6, 7], ids=["the service", "until when the bucket fills", "when to look"])
def test_a_word_in_the_place_of_a_number_stops_no_calls(queue: Queue, world: World, place: int) -> None:
    """Another program wrote it."""
    queue.set_limits({"t": Limits(rate=1000)})
    queue.write_many([(number, "t") for number in range(3)])
    words = world.raw.hget(queue.state.keys.meta, "t:t").split()
    words[place] = b"word"
    world.raw.hset(queue.state.keys.meta, "t:t", b" ".join(words))
    queue.write(3, shard_key="t")
    assert sorted(each.payload for each in queue.read_many(4, block=60)) == [0, 1, 2, 3]


@pytest.mark.runs_in("test-all")
def test_who_was_blocked_before_a_pause_goes_on_at_its_end(
    queue: Queue, world: World, start_reader: StartReader
) -> None:
    reader = start_reader(queue)
    blocked(world, queue, 1)
    queue.pause(seconds=1)
    queue.write("during the pause", shard_key="t")
    assert reader.got().payload == "during the pause"
    assert queue.paused() == {}


def test_a_write_after_a_pause_wakes_who_was_blocked_before_it(
    queue: Queue, world: World, start_reader: StartReader
) -> None:
    reader = start_reader(queue)
    blocked(world, queue, 1)
    queue.pause(seconds=0.05)
    eventually(lambda: queue.paused() == {}, what="the end of a pause")
    queue.write("after the pause", shard_key="t")
    assert reader.got().payload == "after the pause"


@pytest.mark.runs_in("test-all")
def test_a_full_queue_learns_of_a_lease_that_ends_behind_one_that_was_acked(
    queue: Queue, world: World, start_reader: StartReader
) -> None:
    """Of the same shard key, so that the index of what comes due has the time of the first one only."""
    queue.configure(total_in_flight=1)
    queue.write_many([(number, "t") for number in range(3)])
    queue.read(visibility_timeout=100).ack()
    lost = queue.read(visibility_timeout=102)
    world.elapse(queue, 101)
    reader = start_reader(queue)
    assert reader.got().payload in (lost.payload, 2)


def test_a_delivery_that_is_given_back_unseen_makes_room_in_a_full_queue(
    queue: Queue, world: World, start_reader: StartReader
) -> None:
    """Its own message is limited by now, so that it wakes nobody."""
    queue.configure(total_in_flight=1)
    queue.write("mine", shard_key="t")
    held = queue.read()
    queue.pause("t")
    queue.write("other", shard_key="u")
    reader = start_reader(queue)
    blocked(world, queue, 1)
    queue._client.run(unread(queue.state, [held.received], 60))
    assert reader.got().payload == "other"


@pytest.mark.runs_in("test-all")
def test_writes_that_a_rate_holds_back_wake_a_reader_once(
    queue: Queue, world: World, start_reader: StartReader
) -> None:
    """It learns when the next token is there, and hands that on once: should it be gone by then, another one knows."""
    queue.set_limits({"t": Limits(rate=0.22, burst=1)})
    queue.write(0, shard_key="t")
    queue.read()
    reader = start_reader(queue)
    blocked(world, queue, 1)
    before = woken(world, queue)
    for number in range(1, 20):
        queue.write(number, shard_key="t")
    assert woken(world, queue) - before == 2
    assert reader.got().payload == 1


@pytest.mark.runs_in("test-all")
def test_each_shard_key_that_a_rate_holds_back_has_a_reader_that_comes_in_time(
    queue: Queue, open_queue: OpenQueue, world: World, start_reader: StartReader
) -> None:
    """Who works on the first one's message does not look at what comes after it."""
    rates = {"t": 0.25, "u": 0.22}
    queue.set_limits({key: Limits(rate=rate, burst=1) for key, rate in rates.items()})
    queue.write_many([(0, key) for key in rates])
    queue.read_many(2)
    readers = [start_reader(open_queue(by=world.client(wait_slice=SLICE))) for _ in rates]
    blocked(world, queue, 2)
    for key in rates:
        queue.write(1, shard_key=key)
    assert {reader.got().shard_key for reader in readers} == {*rates}


def woken(world: World, queue: Queue) -> int:
    """How many notifications there were."""
    return int(world.raw.xinfo_stream(queue.state.keys.notifications)["entries-added"])


@pytest.mark.parametrize("scope", ["shard key", "every shard key"])
def test_an_ack_that_makes_room_under_a_cap_wakes_those_who_wait(
    queue: Queue, world: World, start_reader: StartReader, scope: str
) -> None:
    if scope == "shard key":
        queue.set_limits({"t": Limits(max_in_flight=2)})
    else:
        queue.configure(max_in_flight=2)
    queue.write_many([(number, "t") for number in range(4)])
    held = [queue.read(), queue.read()]
    readers = [start_reader(queue), start_reader(queue)]
    eventually(lambda: len(waiting_of(queue.state).waiters()) == 2)
    blocked(world, queue, 1)  # they share a connection
    for each in held:
        each.ack()
    assert sorted(reader.got().payload for reader in readers) == [2, 3]
