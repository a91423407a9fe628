"""A plain stream of the un-sharded predecessor is adopted: drained in its turn, beside its own consumers."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import ConfigError, LeaseLost, MessageCancelled, MessageNotFound, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually

GROUP = "old-workers"


class Plain:
    """The predecessor: a plain stream with its own group."""

    def __init__(self, raw: Any, key: str) -> None:
        self.raw, self.key = raw, key

    def write(self, *jobs: str) -> list[str]:
        return [self.raw.xadd(self.key, {"job": job, "raw": b"\xff"}).decode() for job in jobs]

    def read(self, consumer: str, count: int = 1) -> list[str]:
        """As an old worker reads."""
        reply = self.raw.xreadgroup(GROUP, consumer, {self.key: ">"}, count=count)
        return [fields[b"job"].decode() for _, fields in reply[0][1]] if reply else []

    def abandon(self, consumer: str, entry: str) -> None:
        """The old worker died a minute ago, with this entry in its hands."""
        self.raw.xclaim(self.key, GROUP, consumer, 0, [entry], idle=60_000, justid=True)

    def pending(self) -> int:
        return int(self.raw.xpending(self.key, GROUP)["pending"])


@pytest.fixture
def plain(world: World, queue_name: str) -> Plain:
    """The stream and its group; on a cluster it must lie in the queue's slot."""
    plain = Plain(world.raw, f"{{{queue_name}}}:old")
    world.raw.xgroup_create(plain.key, GROUP, id="0", mkstream=True)
    return plain


@pytest.fixture
def queue(open_queue: OpenQueue, plain: Plain) -> Queue:
    """A queue that adopts it."""
    return adopting(open_queue, plain)


def adopting(open_queue: OpenQueue, plain: Plain, **settings: int) -> Queue:
    """A queue that adopts the stream."""
    return open_queue(
        streams=4, streams_per_shard=4, max_deliveries=2, legacy_stream=plain.key, legacy_group=GROUP,
        visibility_timeout=30, **settings,
    )  # fmt: skip


def job(delivery: Any) -> str:
    """What a legacy message asks for."""
    return str(delivery.payload["job"].decode())


def test_its_entries_are_handed_out_as_their_fields(queue: Queue, plain: Plain) -> None:
    [entry] = plain.write("first")
    delivery = queue.read()
    assert delivery.payload == {"job": b"first", "raw": b"\xff"}
    assert (delivery.message_id, delivery.count, delivery.stream) == (f"{entry}-l", 1, None)
    delivery.ack()
    assert plain.raw.xlen(plain.key) == 0


@pytest.mark.everywhere
def test_it_is_drained_in_order_until_it_is_empty(queue: Queue, plain: Plain, world: World) -> None:
    plain.write(*map(str, range(20)))
    assert [job(each) for each in queue.read_many(6)] == list(map(str, range(6)))
    assert (queue.stats().legacy, queue.len()) == (14, 6)  # its length, and what was adopted
    found = [job(queue.read()) for _ in range(14)]
    assert found == list(map(str, range(6, 20)))
    assert queue.read_many(9) == []
    assert (queue.len(), world.census(queue).problems()) == (20, [])


def test_it_has_its_turn_among_the_streams(open_queue: OpenQueue, plain: Plain) -> None:
    queue = adopting(open_queue, plain, window=0)
    plain.write("old", "old", "old")
    queue.write_many([("new", "t")] * 12)
    order = ["old" if each.stream is None else "new" for each in (queue.read() for _ in range(15))]
    assert order[:5].count("old") == order[5:10].count("old") == order[10:].count("old") == 1


def test_what_its_living_consumers_hold_stays_theirs(queue: Queue, plain: Plain) -> None:
    plain.write("theirs", "mine", "theirs too")
    assert plain.read("old") == ["theirs"]
    assert job(queue.read()) == "mine"
    assert plain.read("old") == ["theirs too"]
    assert queue.read_many(9) == []
    assert plain.pending() == 2  # shardq leaves nothing of its own there


def test_what_its_dead_consumers_held_is_taken_over(queue: Queue, plain: Plain, world: World) -> None:
    lost, kept = plain.write("lost", "kept")
    assert plain.read("dead") + plain.read("alive") == ["lost", "kept"]
    plain.abandon("dead", lost)
    [delivery] = queue.read_many(9)
    assert (job(delivery), delivery.message_id, plain.pending()) == ("lost", f"{lost}-l", 1)
    delivery.ack()
    assert [entry.decode() for entry, _ in plain.raw.xrange(plain.key)] == [kept]
    assert (queue.len(), world.census(queue).problems()) == (0, [])


def test_an_adopted_message_is_leased_and_given_back_like_any_other(queue: Queue, plain: Plain, world: World) -> None:
    plain.write("job")
    first = queue.read()
    first.nack(error="no")
    second = queue.read()
    assert (job(second), second.count, second.last_error) == ("job", 2, "no")
    with pytest.raises(LeaseLost):
        first.ack()
    second.extend(100)
    world.elapse(queue, 60)
    assert queue.read_many(9) == []
    world.elapse(queue, 60)
    assert queue.read_many(9) == []  # past its deliveries
    [letter] = queue.dead()
    assert (letter.message_id, letter.count, letter.reason) == (first.message_id, 2, "max deliveries")
    assert (plain.raw.xlen(plain.key), world.census(queue).problems()) == (0, [])


def test_an_adopted_message_comes_back_from_the_dead_as_its_fields(queue: Queue, plain: Plain, world: World) -> None:
    plain.write("job")
    first = queue.read()
    first.reject("no")
    [letter] = queue.dead()
    assert letter.payload == {"job": b"job", "raw": b"\xff"}
    assert queue.redrive([letter]) == 1
    again = queue.read()
    assert (again.payload, again.message_id) == ({"job": b"job", "raw": b"\xff"}, first.message_id)
    assert again.count == 2
    again.ack()
    assert (queue.len(), world.census(queue).problems()) == (0, [])


def test_an_adopted_message_waits_when_it_is_given_back_with_a_delay(queue: Queue, plain: Plain, world: World) -> None:
    plain.write("job")
    queue.read().nack(delay=60)
    assert (queue.read_many(9), queue.stats().delayed) == ([], 1)
    world.elapse(queue, 60)
    assert queue.read().count == 2
    assert world.census(queue).problems() == []


def test_an_adopted_message_can_be_cancelled(queue: Queue, plain: Plain, world: World) -> None:
    plain.write("held", "waiting")
    held, waiting = queue.read(), queue.read()
    waiting.nack(delay=60)
    assert (queue.cancel(held.message_id), queue.cancel(waiting.message_id)) == ("in flight", "removed")
    with pytest.raises(MessageCancelled):
        held.ack()
    assert (queue.len(), plain.raw.xlen(plain.key), world.census(queue).problems()) == (0, 0, [])


def test_an_entry_that_was_never_adopted_is_no_message_yet(queue: Queue, plain: Plain, world: World) -> None:
    """Cancelling what was not handed out changes nothing: it is still its old owner's."""
    queue.read_many(1)
    (entry,) = plain.write("a")
    with pytest.raises(MessageNotFound):
        queue.cancel(f"{entry}-l")
    assert plain.raw.xlen(plain.key) == 1
    assert world.raw.scard(queue.state.keys.cancelled) == 1  # the sentinel
    assert job(queue.read()) == "a"


def test_a_stream_that_does_not_exist_is_no_trouble(open_queue: OpenQueue, queue_name: str, world: World) -> None:
    key = f"{{{queue_name}}}:never"
    queue = open_queue(streams=2, legacy_stream=key, legacy_group=GROUP)
    assert queue.read_many(9) == []
    queue.write("new", shard_key="t")
    assert [each.payload for each in queue.read_many(9)] == ["new"]
    assert key not in world.stored()
    world.raw.xadd(key, {"job": "late"})  # without a group, too
    assert job(queue.read()) == "late"


def test_a_migration_by_configuration(open_queue: OpenQueue, plain: Plain) -> None:
    queue = open_queue(streams=2)
    queue.write("new", shard_key="t")
    plain.write("old")
    assert len(queue.read_many(9)) == 1
    queue.configure(legacy_stream=plain.key, legacy_group=GROUP)
    assert job(queue.read()) == "old"
    queue.configure(legacy_stream=None, legacy_group=None)
    plain.write("left alone")
    assert queue.read_many(9) == []


def test_what_was_adopted_comes_though_the_queue_has_no_legacy_stream_any_more(
    open_queue: OpenQueue, plain: Plain, world: World
) -> None:
    queue = open_queue(streams=2, legacy_stream=plain.key, legacy_group=GROUP)
    plain.write("old", "held", "left alone")
    given_back, held = queue.read_many(2)
    given_back.nack()
    queue.configure(legacy_stream=None, legacy_group=None)
    held.ack()
    assert plain.raw.xlen(plain.key) == 1
    assert [job(each) for each in open_queue(by=world.client()).read_many(9)] == ["old"]
    assert world.census(queue).problems() == []


def test_purging_leaves_what_was_never_adopted(queue: Queue, plain: Plain, world: World) -> None:
    plain.write("adopted", "not adopted")
    queue.read().nack()
    assert queue.purge() == 1
    assert (plain.raw.xlen(plain.key), queue.len(), world.census(queue).problems()) == (1, 0, [])


@pytest.mark.usefixtures("real")
def test_a_blocked_reader_sees_what_its_old_producers_write(
    open_queue: OpenQueue, queue: Queue, plain: Plain, world: World
) -> None:
    """They do not notify, so a reader looks for itself, once in each slice."""
    assert queue.read_many(1) == []
    reader = open_queue(by=world.client(wait_slice=0.1))
    plain.write("old")
    assert job(eventually(lambda: reader.read(block=20))) == "old"


@pytest.mark.parametrize("settings", [{"legacy_stream": "s"}, {"legacy_group": "g"}], ids=str)
def test_a_stream_without_its_group_is_refused(open_queue: OpenQueue, world: World, settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="go together"):
        open_queue(streams=2, **settings)
    assert world.stored() == set()


@pytest.mark.usefixtures("clustered")
def test_on_a_cluster_a_stream_in_another_slot_is_refused(open_queue: OpenQueue) -> None:
    with pytest.raises(ConfigError, match="must lie in the queue's slot"):
        open_queue(streams=2, legacy_stream="elsewhere", legacy_group=GROUP)
    queue = open_queue(streams=2)
    queue.read_many(1)
    with pytest.raises(ConfigError, match="must lie in the queue's slot"):
        queue.configure(legacy_stream="elsewhere", legacy_group=GROUP)
