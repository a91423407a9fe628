"""The journal: replayed, it is the queue; it is bounded, and says what it lost; it never stands in the way."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shardq import Client, ConfigError, LeaseLost, Limits, Message, Queue, QueueMissing
from shardq.ops.read.give_back import unread
from shardq.protocol.journal import FORMAT, KINDS, decode
from shardq.protocol.scripts import load
from tests.conformance.conftest import OpenQueue
from tests.conformance.random_ops import RandomOps
from tests.conformance.replay import MOVES, OF_NO_MESSAGE, Replay
from tests.conformance.world import World
from tests.surface import differences
from tests.waiting import eventually


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue of four streams, all of them everybody's shard, with a journal."""
    return open_queue(streams=4, streams_per_shard=4, max_deliveries=3, journal=100_000)


def kinds(queue: Queue, after: int = 0) -> list[str]:
    """What happened."""
    return [event.kind for event in queue.journal(10_000, after=after).events]


class Walk(RandomOps):
    """A ops that also purges, lets deadlines pass, repeats dedup keys and gives back what it read, uncounted."""

    def __init__(self, open_queue: OpenQueue, world: World, rng: random.Random) -> None:
        super().__init__(open_queue, world, rng, journal=100_000, max_dead=rng.choice((3, 100)))
        self._acts |= {self._purge: 0.3, self._write_lapsed: 1, self._write_keyed: 2}
        if isinstance(self.queue, Queue):
            self._acts[self._unread] = 2

    def _purge(self) -> None:
        self.queue.purge()

    def _write_lapsed(self) -> None:
        self.alive.add(self.queue.write("in vain", shard_key="a", deadline=0.001))

    def _write_keyed(self) -> None:
        each = [Message("keyed", "a", dedup_key=self._rng.choice("xyz"), delay=self._rng.choice((None, 50.0)))]
        self._store([*each, Message("plain", "f f"), *each])

    def _unread(self) -> None:
        found = self.queue.read_many(2, visibility_timeout=60)
        self.queue._client.run(unread(self.queue.state, [each.received for each in found], 60))


@pytest.mark.once
@pytest.mark.parametrize("walk", range(2))
def test_replayed_the_journal_is_the_queue(open_queue: OpenQueue, world: World, rng: random.Random, walk: int) -> None:
    own = random.Random(rng.random() + walk)
    ops = Walk(open_queue, world, own)
    replay = Replay(ops.queue)
    for _ in range(25):
        for _ in range(8):
            ops.step()
        replay.follow(own.choice((1, 7, 1000)))
        assert replay.problems(world.raw, world.census(ops.queue)) == [], ops.log[-8:]


@pytest.mark.everywhere
@pytest.mark.parametrize(("window", "known"), [(0, None), (1, "a")])
def test_each_kind_of_event_has_its_name_and_its_columns(
    open_queue: OpenQueue, world: World, window: int, known: str | None
) -> None:
    """The lease of a message that counts in the window names its shard key."""
    queue = open_queue(streams=4, streams_per_shard=4, max_deliveries=3, journal=100_000, window=window)
    first, second = queue.write("1", shard_key="a"), queue.write("2", shard_key=b"b\n,\xff", delay=60)
    one = queue.read()
    one.nack(delay=30)
    world.elapse(queue, 100)
    both = {each.message_id: each for each in queue.read_many(2, visibility_timeout=20)}
    both[second].ack()
    world.elapse(queue, 50)
    last = queue.read()
    last.reject("poison")
    queue.redrive(queue.dead())
    again = queue.read()
    assert queue.cancel(first) == "in flight"
    queue.nack_many([again])
    third = queue.write("3", shard_key="c")
    queue.cancel(third)
    fourth = queue.write("4", shard_key="d")
    queue.purge()

    rows = [(each.kind, each.message_id, each.shard_key, each.count) for each in queue.journal().events]
    delivered = sorted([("delivered", first, "a", 2), ("delivered", second, b"b\n,\xff", 1)])
    assert sorted(rows[4:6]) == delivered
    assert rows[:4] + rows[6:] == [
        ("written", first, "a", 0), ("written", second, b"b\n,\xff", 0), ("delivered", first, "a", 1),
        ("nacked", first, "a", 1), ("acked", second, b"b\n,\xff", 1), ("lease_ended", first, "a", 2),
        ("delivered", first, "a", 3), ("rejected", first, "a", 3), ("redriven", first, "a", 3),
        ("delivered", first, "a", 4), ("cancelling", first, "a", 4),
        ("cancelled", first, "a", 0),
        ("written", third, "c", 0), ("cancelled", third, "c", 0), ("written", fourth, "d", 0),
        ("purged", fourth, "d", 0),
    ]  # fmt: skip


def test_times_and_due_times_are_the_servers(queue: Queue) -> None:
    plain, delayed = queue.write("1", shard_key="a"), queue.write("2", shard_key="a", delay=60)
    queue.read().nack(delay=30)
    written, later, delivered, nacked = queue.journal().events

    begin = int(plain.partition("-")[0]) / 1000
    assert (written.due, delivered.due) == (None, None)
    assert written.time == begin
    assert later.due == pytest.approx(int(delayed.partition("-")[0]) / 1000 + 60, abs=0.002)
    assert nacked.due == pytest.approx(nacked.time + 30, abs=0.002)
    assert begin <= later.time <= delivered.time <= nacked.time < begin + 30


def test_deliveries_say_when_a_delayed_message_was_due(queue: Queue, world: World) -> None:
    queue.write("1", shard_key="a", delay=60)
    world.elapse(queue, 61)
    queue.read()
    written, delivered = queue.journal().events
    assert delivered.due == (written.due or 0) - 61  # that much is said to have passed


def test_what_dies_waits_for_room_while_the_dead_letters_are_full(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2, streams_per_shard=2, max_deliveries=2, max_dead=1, journal=1000, window=0)
    queue.write_many([("1", "a"), ("2", "a")])
    for each in queue.read_many(2):
        each.reject("poison")
    world.elapse(queue, 10)
    queue.read_many(1)
    queue.redrive(queue.dead())
    world.elapse(queue, 10)
    queue.read_many(1)
    assert kinds(queue)[4:] == ["rejected", "no_room", "no_room", "redriven", "dead", "delivered"]


def test_a_message_whose_own_deadline_is_over_expires(queue: Queue, world: World) -> None:
    written = int(queue.write("1", shard_key="a", deadline=0.001).partition("-")[0])
    eventually(lambda: world.census(queue).now > written + 1)
    assert queue.read_many(1) == []
    assert kinds(queue) == ["written", "expired"]


def test_a_message_vanishes_whose_entry_another_program_has_deleted(queue: Queue, world: World) -> None:
    replay, message_id = Replay(queue), queue.write("1", shard_key="a")
    delivery = queue.read()
    world.raw.xdel(queue.state.keys.stream(delivery.stream or 0), message_id.rpartition("-")[0])
    with pytest.raises(LeaseLost):
        delivery.nack()
    replay.follow()
    assert kinds(queue) == ["written", "delivered", "vanished"]
    assert replay.problems(world.raw, world.census(queue)) == []


def test_an_adopted_message_begins_with_its_delivery(open_queue: OpenQueue, world: World, queue_name: str) -> None:
    old = f"{{{queue_name}}}:old"
    world.raw.xadd(old, {"job": "secret"})
    queue = open_queue(streams=2, streams_per_shard=1, legacy_stream=old, legacy_group="g", journal=100)
    queue.read().nack()
    queue.read().ack()
    rows = [(each.kind, each.shard_key, each.stream, each.count) for each in queue.journal().events]
    assert rows == [("delivered", None, None, 1), ("nacked", None, None, 1), ("delivered", None, None, 2),
                    ("acked", None, None, 2)]  # fmt: skip


def test_without_a_journal_nothing_is_written(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2, streams_per_shard=1, max_deliveries=2)
    queue.write_many([("1", "a"), ("2", "b"), ("3", "c")])
    one, two, three = queue.read_many(3)
    one.ack()
    two.nack()
    three.reject("no")
    queue.redrive(queue.dead())
    queue.purge()
    page = queue.journal()
    assert (page.events, page.lost, page.position) == ([], 0, page.latest)
    assert world.raw.xlen(queue.state.keys.journal) == 0


def test_a_journal_is_bounded_and_says_how_much_was_lost(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2, streams_per_shard=2, journal=200)
    queue.read_many(1)
    start, written = queue.journal().position, 0
    for size in (1, 1, 1, 250, 30, 1, 77) * 8:
        queue.write_many([(str(n), "tenant") for n in range(size)])
        written += size
    page = queue.journal(10_000, after=start)
    assert page.latest == page.position == start + written
    assert 200 <= len(page.events) <= 200 + 100 + 250
    assert page.lost == written - len(page.events)
    assert page.events[-1].number == page.latest
    assert world.raw.xlen(queue.state.keys.journal) < 120
    small = queue.journal(1, after=start)
    assert (small.lost, small.events) == (page.lost, page.events[:1])


def test_a_page_holds_no_more_than_was_asked_for_and_goes_on_exactly(queue: Queue) -> None:
    queue.write_many([(str(n), "tenant") for n in range(120)])
    queue.write("1", shard_key="a")
    whole, position, pages = queue.journal().events, 0, []
    while (page := queue.journal(50, after=position)).events:
        assert len(page.events) <= 50
        assert page.lost == 0
        pages += page.events
        position = page.position
    assert pages == whole
    assert len(whole) == 121
    assert position == page.latest


@pytest.mark.usefixtures("real")
def test_the_server_returns_no_more_entries_than_hold_a_page(queue: Queue, world: World) -> None:
    for _ in range(50):
        queue.write("1", shard_key="a")
    keys = queue.state.keys
    reply = world.raw.eval(load("journal").source, 2, keys.meta, keys.journal, 0, 10)
    assert (len(reply[3]), reply[2]) == (10, 1)


def test_entries_that_went_missing_are_noticed(queue: Queue, world: World) -> None:
    for size in (1, 5, 2, 3):
        queue.write_many([(str(n), "tenant") for n in range(size)])
    key, before = queue.state.keys.journal, queue.journal()
    ids = [entry for entry, _ in world.raw.xrange(key)]
    world.raw.xdel(key, ids[1])
    page = queue.journal()
    assert (page.lost, page.events) == (5, before.events[:1] + before.events[6:])
    world.raw.delete(key)
    assert queue.journal(after=before.events[0].number).lost == 10
    assert queue.journal().position == before.latest


def test_what_others_write_there_is_passed_over(queue: Queue, world: World) -> None:
    queue.write("1", shard_key="a")
    key, last = queue.state.keys.journal, queue.journal().latest
    world.raw.xadd(key, {"some": "thing"}, id=f"{last}-18446744073709551614")
    world.raw.xadd(key, {FORMAT: b"no such format"}, id=f"{last}-18446744073709551615")
    queue.write("2", shard_key="a")
    page = queue.journal()
    assert [each.kind for each in page.events] == ["written"] * 2
    assert page.lost == 0


def test_a_page_of_nothing_but_what_others_wrote_leads_on(queue: Queue, world: World) -> None:
    queue.write("1", shard_key="a")
    key, first = queue.state.keys.journal, queue.journal().latest
    for _ in range(5):
        world.raw.xadd(key, {"some": "thing"})
    world.raw.xdel(key, world.raw.xrange(key, count=1)[0][0])
    queue.write("2", shard_key="a")
    page = queue.journal(2, after=first - 1)
    assert (page.events, page.lost, page.position) == ([], 1, first)
    page = queue.journal(2, after=page.position)
    assert ([each.kind for each in page.events], page.lost, page.position) == (["written"], 0, first + 1)


@pytest.mark.parametrize("trouble", ["another type", "ids from the future"])
def test_a_journal_that_cannot_be_written_stands_in_nobodys_way(queue: Queue, world: World, trouble: str) -> None:
    queue.write("1", shard_key="a")
    key, before = queue.state.keys.journal, queue.journal().position
    if trouble == "another type":
        world.raw.delete(key)
        world.raw.set(key, "something")
    else:
        world.raw.xadd(key, {"some": "thing"}, id="9000000000000000000-0")
    queue.write("2", shard_key="a")
    one, two = queue.read_many(2)
    one.ack()
    two.nack(error="why")
    queue.read().reject("no")
    queue.redrive(queue.dead())
    assert queue.purge() == 1
    if trouble == "another type":
        world.raw.delete(key)
    page = queue.journal(after=before)
    assert (page.events, page.lost) == ([], 9)
    assert page.position == page.latest
    assert world.census(queue).problems() == []


def test_switched_off_it_drops_what_it_held_and_the_gap_is_noticed(queue: Queue, world: World) -> None:
    queue.write("1", shard_key="a")
    begin = queue.journal().position
    queue.configure(journal=0)
    queue.write("2", shard_key="a")
    assert world.raw.xlen(queue.state.keys.journal) == 0
    queue.configure(journal=10)
    queue.configure(journal=20)
    queue.write("3", shard_key="a")
    page = queue.journal(after=begin)
    assert ([each.kind for each in page.events], page.lost) == (["configured", "configured", "written"], 1)


def test_a_journal_that_is_ahead_of_the_queue_is_noticed(queue: Queue) -> None:
    """As after a failover that lost events which somebody had read."""
    queue.write("1", shard_key="a")
    latest = queue.journal().latest
    ahead = queue.journal(after=latest + 1_000)
    assert (ahead.events, ahead.position, ahead.lost) == ([], latest, 1)


def test_nothing_of_what_users_wrote_is_in_it_but_shard_keys(queue: Queue, world: World) -> None:
    queue.write(b"payload-secret", shard_key="tenant", headers={"name-secret": "value-secret"}, dedup_key="key-secret")
    queue.read().nack(error="error-secret")
    queue.read().reject("reason-secret")
    raw = repr(world.raw.xrange(queue.state.keys.journal))
    assert len(kinds(queue)) == 5
    assert "tenant" in raw
    assert "secret" not in raw


def test_repeated_writes_are_no_events(queue: Queue) -> None:
    batch = [Message("1", "a", dedup_key="x"), Message("2", "b"), Message("3", "a", dedup_key="x", delay=5)]
    assert queue.write_many(batch)[0] == queue.write("4", shard_key="a", dedup_key="x")
    rows = [(each.kind, each.shard_key, each.due) for each in queue.journal().events]
    assert rows == [("written", "a", None), ("written", "b", None)]


def test_a_lost_ack_is_no_event(queue: Queue, world: World) -> None:
    queue.write_many([("1", "a"), ("2", "b")])
    found = queue.read_many(2, visibility_timeout=20)
    found[0].ack()
    assert [each.message_id for each in queue.ack_many(found)] == [found[0].message_id]
    world.elapse(queue, 30)
    assert kinds(queue) == ["written"] * 2 + ["delivered"] * 2 + ["acked"] * 2
    assert queue.journal().events[-1].shard_key == found[1].shard_key


def test_a_client_that_does_not_know_of_the_journal_yet_is_journaled_all_the_same(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4, streams_per_shard=4)
    queue.write_many([(str(n), "tenant") for n in range(4)])
    one, two, *rest = queue.read_many(4)
    open_queue(by=world.client()).configure(journal=100)
    one.ack()
    two.nack()
    queue.ack_many(rest)
    configured, *events = queue.journal().events
    assert configured.kind == "configured"
    assert [each.kind for each in events] == ["acked", "nacked", "acked", "acked"]
    assert [each.message_id for each in events] == [each.message_id for each in (one, two, *rest)]


def test_an_event_says_which_client_made_the_call(open_queue: OpenQueue, queue: Queue, world: World) -> None:
    named = open_queue(by=world.client(name="worker-7"))
    queue.write("1", shard_key="a")
    named.read().nack()
    queue.read().ack()
    default = queue.journal().events[-1].client
    assert [each.client for each in queue.journal().events] == ["", "worker-7", "worker-7", default, default]
    assert default.rpartition("-")[2].isdigit()


def test_raw_entries_decode_into_columns(queue: Queue, world: World) -> None:
    """As readers do that take them from Redis themselves."""
    queue.write_many([(str(n), f"tenant-{n}") for n in range(10)])
    queue.ack_many(queue.read_many(10))
    events = queue.journal().events
    entries = world.raw.xrange(queue.state.keys.journal, f"({events[4].number}-18446744073709551615")
    rows = [(entry, [name, value]) for entry, fields in entries for name, value in fields.items()]
    columns = decode(rows, events[4].number, events[24].number)
    assert columns.number == [each.number for each in events[5:25]]
    assert columns.message_id == [each.message_id for each in events[5:25]]
    assert columns.kind == ["written"] * 5 + ["delivered"] * 10 + ["acked"] * 5
    assert columns.lost == 0


@pytest.mark.parametrize("bad", [{"count": 0}, {"count": 10_001}, {"count": 1.0}, {"after": -1}, {"after": "0"}])
def test_bad_arguments_are_refused(queue: Queue, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        queue.journal(**bad)


def test_a_queue_that_does_not_exist_has_no_journal(client: Client) -> None:
    with pytest.raises(QueueMissing):
        client.queue("nothing-here", create=True).journal()


def test_it_says_who_limited_and_paused_whom(queue: Queue) -> None:
    queue.declare()
    queue.set_limits({"acct-7": Limits(max_in_flight=3), "acct/8": Limits(rate=10)})
    queue.pause("acct-7", seconds=60)
    queue.pause("acct-7")
    queue.resume("acct-7")
    queue.pause(seconds=30)
    queue.resume()
    events = queue.journal().events
    assert [(each.kind, each.shard_key) for each in events] == [
        ("limited", "acct-7"), ("limited", "acct/8"), ("paused", "acct-7"), ("paused", "acct-7"), ("resumed", "acct-7"),
        ("paused", None), ("resumed", None),
    ]  # fmt: skip
    assert {(each.message_id, each.count, each.stream, each.client) for each in events} == {
        ("", 0, None, queue.state.client)
    }
    ends = [None if each.due is None else round(each.due - each.time) for each in events]
    assert ends == [None, None, 60, None, None, 30, None]


def test_it_says_who_changed_settings_and_weights(queue: Queue) -> None:
    queue.declare()
    queue.configure(max_deliveries=9)
    queue.set_weights({"acct-7": 3, "acct-8": 2})
    events = queue.journal().events
    assert [(each.kind, each.shard_key, each.message_id) for each in events] == [
        ("configured", None, ""), ("weighted", "acct-7", ""), ("weighted", "acct-8", ""),
    ]  # fmt: skip
    assert {each.client for each in events} == {queue.state.client}
    queue.configure(journal=0)
    queue.configure(max_deliveries=8)
    queue.configure(journal=10)
    assert [each.kind for each in queue.journal().events] == ["configured"]


def test_every_letter_stands_for_one_kind() -> None:
    assert len(set(KINDS.values())) == len(KINDS)


def test_a_replay_knows_each_kind() -> None:
    assert differences([*MOVES, *OF_NO_MESSAGE], KINDS.values()) == []
