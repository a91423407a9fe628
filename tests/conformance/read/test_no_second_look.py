"""A reader that has just taken all there was waits without a second look: nothing that came meanwhile is missed.

Here it may do so for a minute, and looks for itself each minute only: what comes within `SOON` was a wake-up.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shardq import Client, Delivery, Queue
from shardq.client import base
from shardq.ops.read import waiting
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.state import odd_of
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("real")
MINUTE = 60
SOON = 15
JOBS = 20


@pytest.fixture
def other(queue: Queue, world: World, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client of a reader that relies on being woken."""
    monkeypatch.setattr(base, "MAX_SLICE", MINUTE)
    monkeypatch.setattr(waiting, "FRESH_SECONDS", MINUTE)
    return world.client(wait_slice=MINUTE)


@pytest.fixture
def reader(open_queue: OpenQueue, other: Client) -> Queue:
    """The test's queue for that reader."""
    return open_queue(by=other, streams=4, streams_per_shard=4)


class Reading(threading.Thread):
    """One read that waits, by a thread of its own."""

    def __init__(self, reader: Queue, count: int = 10, **wanted: Any) -> None:
        super().__init__(daemon=True)
        self._reader, self._count, self._wanted, self._found = reader, count, wanted, list[Delivery]()
        self.start()

    def run(self) -> None:
        self._found = self._reader.read_many(self._count, block=40, **self._wanted)

    def found(self) -> list[Any]:
        """The payloads, which must come soon."""
        self.join(SOON)
        assert not self.is_alive(), "the message came too late"
        return [each.payload for each in self._found]

    def delivery(self) -> Delivery:
        """The only one."""
        self.found()
        [delivery] = self._found
        return delivery


def all_found(reader: Queue, count: int) -> list[Any]:
    """So many payloads, which must come soon, in order."""
    found = list[Any]()
    while len(found) < count:
        found += Reading(reader).found()
    return sorted(found)


def blocked(world: World, queue: Queue, count: int = 1) -> None:
    """Wait until so many readers block on the server."""
    eventually(lambda: world.blocked(queue) == count, what=f"{count} blocked readers")


def emptied(world: World, queue: Queue, reader: Queue, **wanted: Any) -> Delivery:
    """What the *reader* took just now, which was all that there was. Since before that, writers notify."""
    reading = Reading(reader, **wanted)
    blocked(world, queue)
    queue.write("first", shard_key="first")
    return reading.delivery()


def calls(world: World, command: str) -> int:
    """How often the server has run a command."""
    return int(world.raw.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


@pytest.mark.once
@pytest.mark.parametrize("wanted", [1, 10])
def test_a_job_that_comes_alone_costs_a_write_a_read_and_an_ack(
    world: World, queue: Queue, reader: Queue, wanted: int
) -> None:
    delivery = emptied(world, queue, reader)
    before, asked = calls(world, "fcall"), calls(world, "client|id")
    for number in range(JOBS):
        reading = Reading(reader, wanted, ack=[delivery])
        blocked(world, queue)
        queue.write(number, shard_key="t")
        delivery = reading.delivery()
        assert delivery.payload == number
    assert calls(world, "fcall") - before <= 3 * JOBS
    assert calls(world, "client|id") == asked


@pytest.mark.everywhere
def test_what_is_written_before_the_wait_begins_ends_it(world: World, queue: Queue, reader: Queue) -> None:
    emptied(world, queue, reader)
    queue.write("second", shard_key="t")
    assert Reading(reader).found() == ["second"]


def test_many_that_are_written_before_the_wait_begins_are_all_found(world: World, queue: Queue, reader: Queue) -> None:
    emptied(world, queue, reader)
    queue.write_many([(number, f"t{number % 7}") for number in range(100)])
    assert all_found(reader, 100) == list(range(100))


def test_whose_read_was_full_looks_again(world: World, queue: Queue, reader: Queue) -> None:
    """More may be there, and their notifications are gone."""
    emptied(world, queue, reader)
    queue.write_many([(number, "t") for number in range(11)])
    world.raw.xgroup_setid(queue.state.keys.notifications, "shardq", "$")
    assert len(reader.read_many(10)) == 10
    assert len(Reading(reader).found()) == 1


def test_who_was_not_waited_for_looks_again(queue: Queue, reader: Queue) -> None:
    """Writers do not notify: nobody has waited yet."""
    queue.write("first", shard_key="t")
    assert len(reader.read_many(10)) == 1
    queue.write("second", shard_key="t")
    assert Reading(reader).found() == ["second"]


@pytest.mark.everywhere
def test_what_comes_due_after_the_last_look_ends_the_wait(world: World, queue: Queue, reader: Queue) -> None:
    emptied(world, queue, reader)
    queue.write("later", shard_key="t", delay=0.4)
    assert Reading(reader).found() == ["later"]


def test_what_comes_due_soon_was_written_before_the_last_look(world: World, queue: Queue, reader: Queue) -> None:
    """The read that took all there was is the one that watched for it."""
    reading = Reading(reader)
    blocked(world, queue)
    queue.write("later", shard_key="t", delay=1)
    queue.write("first", shard_key="first")
    assert reading.found() == ["first"]
    assert Reading(reader).found() == ["later"]


def test_while_something_comes_soon_a_reader_that_took_all_there_was_stands_by(
    world: World, queue: Queue, reader: Queue
) -> None:
    """Should the one that watches for it be gone, it looks."""
    reading = Reading(reader)
    blocked(world, queue)
    queue.write("later", shard_key="t", delay=4)
    eventually(lambda: int(odd_of(world.raw, queue.state.keys).get("watched", "0")) > 0, what="it has looked")
    blocked(world, queue)  # before the other one, so it is woken first
    watcher = Reading(queue)
    blocked(world, queue, 2)
    queue.write("first", shard_key="first")
    assert reading.found() == ["first"]
    again = Reading(reader)
    eventually(lambda: odd_of(world.raw, queue.state.keys).get("deputies"), what="a deputy")
    queue.write_many([(number, f"t{number}") for number in range(20)])
    assert again.found()
    assert watcher.found()


def test_the_end_of_the_lease_that_was_just_granted_ends_the_wait(world: World, queue: Queue, reader: Queue) -> None:
    emptied(world, queue, reader, visibility_timeout=0.4)
    assert Reading(reader).delivery().count == 2


def test_what_another_reader_has_taken_and_not_acked_ends_the_wait(world: World, queue: Queue, reader: Queue) -> None:
    """It took the notification, too, and died."""
    emptied(world, queue, reader)
    queue.write("second", shard_key="t")
    notifications = queue.state.keys.notifications
    assert world.raw.xreadgroup("shardq", "reader", {notifications: ">"}, count=1, noack=True)
    assert len(queue.read_many(1, visibility_timeout=0.4)) == 1
    assert Reading(reader).found() == ["second"]


def test_who_lost_a_notification_looks_by_itself(
    world: World, queue: Queue, reader: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.4)
    emptied(world, queue, reader)
    queue.write("second", shard_key="t")
    world.raw.xgroup_setid(queue.state.keys.notifications, "shardq", "$")
    assert Reading(reader).found() == ["second"]


def test_a_lost_stream_of_notifications_ends_the_wait(world: World, queue: Queue, reader: Queue) -> None:
    emptied(world, queue, reader)
    world.raw.delete(queue.state.keys.notifications)
    queue.write("second", shard_key="t")
    assert Reading(reader).found() == ["second"]


@pytest.mark.parametrize("streams", [2, 9])
def test_what_is_written_after_a_resize_ends_the_wait(world: World, queue: Queue, reader: Queue, streams: int) -> None:
    emptied(world, queue, reader)
    queue.resize(streams)
    queue.write_many([(number, f"t{number}") for number in range(30)])
    assert all_found(reader, 30) == list(range(30))


def test_the_end_of_a_pause_ends_the_wait(world: World, queue: Queue, reader: Queue) -> None:
    emptied(world, queue, reader)
    queue.pause()
    queue.write("second", shard_key="t")
    reading = Reading(reader)
    blocked(world, queue)
    queue.resume()
    assert reading.found() == ["second"]


def test_room_under_a_cap_that_its_own_ack_makes_ends_the_wait(
    world: World, open_queue: OpenQueue, other: Client
) -> None:
    reader = open_queue(by=other, max_in_flight=1)
    first = emptied(world, reader, reader)
    reader.write("second", shard_key="first")
    assert Reading(reader, ack=[first]).found() == ["second"]


def test_the_ack_does_not_wait_for_a_message(world: World, queue: Queue, reader: Queue) -> None:
    first = emptied(world, queue, reader)
    reading = Reading(reader, ack=[first])
    eventually(lambda: queue.stats().acked == 1, what="the ack")
    queue.write("second", shard_key="t")
    assert reading.found() == ["second"]
    assert (first.answered, first.lost) == (True, False)


def test_an_ack_whose_lease_was_lost_is_told_so(world: World, queue: Queue, reader: Queue) -> None:
    first = emptied(world, queue, reader, visibility_timeout=600)
    world.elapse(queue, 700)
    assert [each.payload for each in queue.read_many(1)] == ["first"]
    queue.write("second", shard_key="t")
    assert Reading(reader, ack=[first]).found() == ["second"]
    assert (first.answered, first.lost) == (True, True)
