"""peek: messages of every state in their order, page by page, and that looking changes nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shardq import ConfigError, PeekedMessage, Queue, QueueMissing
from shardq.model import PeekState
from tests.conformance.conftest import OpenQueue
from tests.conformance.random_ops import RandomOps
from tests.conformance.world import World

STATES: tuple[PeekState, ...] = ("waiting", "held_back", "delayed", "in_flight", "dead")
SETTINGS = [
    {"window": 0}, {"window": 1}, {"window": 1, "parents": 1}, {"window": 0, "max_in_flight": 2}, {"journal": 1000},
]  # fmt: skip


def peeked(queue: Queue, state: PeekState = "waiting", pages: int = 1000, **wanted: Any) -> list[PeekedMessage]:
    """All messages of a state, in pages of so many."""
    found: list[PeekedMessage] = []
    page = queue.peek(pages, state=state, **wanted)
    found += page.messages
    while page.cursor is not None:
        page = queue.peek(pages, state=state, after=page.cursor, **wanted)
        assert len(page.messages) <= pages
        found += page.messages
    return found


def ids(messages: list[PeekedMessage]) -> list[str]:
    return [each.message_id for each in messages]


def read_singly(queue: Queue, count: int = 1) -> list[str]:
    """All messages, one by one."""
    found = []
    while batch := queue.read_many(count, visibility_timeout=10_000):
        found += [each.message_id for each in batch]
    return found


@pytest.mark.everywhere
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_each_state_has_its_messages_and_their_facts(
    open_queue: OpenQueue, world: World, settings: dict[str, int]
) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, **settings)
    message_id = queue.write({"a": [1]}, shard_key="a/b", headers={"x": "y"}, deadline=900)
    plain = queue.write(b"plain", shard_key=b"\xff")
    first, second = sorted(peeked(queue), key=lambda each: each.message_id)[:2]
    assert (first.message_id, first.state, first.shard_key, first.headers) == (message_id, "waiting", "a/b", {"x": "y"})
    assert (second.message_id, second.shard_key, second.size, second.stream) == (plain, b"\xff", 5, int(plain[-1]))
    assert (first.payload, first.deliveries, first.since, first.until) == (None, 0, None, None)
    assert first.deadline == pytest.approx(first.written_at + 900, abs=0.01)
    assert {each.payload for each in peeked(queue, payloads=True) if each.message_id == plain} == {b"plain"}
    [loaded] = peeked(queue, shard_key="a/b", payloads=True)
    assert (loaded.payload, loaded.size) == ({"a": [1]}, first.size)

    held = {each.message_id: each for each in queue.read_many(2, visibility_timeout=20)}
    assert peeked(queue) == []
    [flying] = peeked(queue, "in_flight", shard_key="a/b")
    assert (flying.message_id, flying.state, flying.deliveries) == (message_id, "in_flight", 1)
    assert flying.holder == held[message_id].received.token.split(":")[3][:8]
    assert 0 < (flying.until or 0) - queue.stats().time <= 20
    assert len(peeked(queue, "in_flight")) == 2

    held[message_id].nack(delay=30, error="not now")
    [late] = peeked(queue, "delayed")
    assert (late.message_id, late.state, late.deliveries, late.last_error) == (message_id, "delayed", 1, "not now")
    assert late.until == late.since
    world.elapse(queue, 30)
    assert [each.state for each in peeked(queue, "delayed")] == ["waiting"]
    assert [each.state for each in peeked(queue, "in_flight")] == ["waiting"]
    again = {each.message_id: each for each in queue.read_many(2)}
    again[message_id].nack()
    [back] = peeked(queue, shard_key="a/b")
    assert (back.state, back.deliveries, back.last_error) == ("waiting", 2, "not now")
    again[plain].reject("no use")
    [dead] = peeked(queue, "dead", payloads=True)
    assert (dead.message_id, dead.reason, dead.size, dead.payload) == (plain, "no use", 5, b"plain")
    assert peeked(queue, "dead", shard_key="a/b") == []


def test_a_redriven_message_has_its_own_id(queue: Queue) -> None:
    message_id = queue.write(1, shard_key="t")
    queue.read().reject("no")
    queue.redrive(queue.dead())
    [found] = peeked(queue)
    assert (found.message_id, found.deliveries, found.last_error) == (message_id, 1, "no")
    queue.read()
    [flying] = peeked(queue, "in_flight")
    assert (flying.message_id, flying.deliveries) == (message_id, 2)


@pytest.mark.parametrize("window", [0, 1])
def test_a_cancelled_message_in_flight_is_listed_until_its_holder_lets_go(open_queue: OpenQueue, window: int) -> None:
    queue = open_queue(streams=4, window=window)
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    queue.cancel(message_id)
    [found] = peeked(queue, "in_flight")
    assert (found.message_id, found.cancelled, found.deliveries) == (message_id, True, 1)
    queue.ack_many([delivery])
    assert peeked(queue, "in_flight") == []


@pytest.mark.parametrize("delay", [None, 10])
def test_a_cancelled_message_is_over_when_its_lease_is(
    open_queue: OpenQueue, world: World, delay: float | None
) -> None:
    """Of one that was put off before more than its lease is left, until then."""
    queue = open_queue()
    message_id = queue.write(1, shard_key="t", delay=delay)
    world.elapse(queue, 11)
    queue.read(visibility_timeout=20)
    queue.cancel(message_id)
    [found] = peeked(queue, "in_flight")
    assert (found.message_id, found.shard_key, found.cancelled) == (message_id, "t", True)
    world.elapse(queue, 21)
    assert (peeked(queue), peeked(queue, "in_flight")) == ([], [])
    assert queue.status(message_id).state == "unknown"


@pytest.mark.parametrize("pages", [1, 7, 1000])
def test_what_is_held_back_comes_after_the_streams_in_order(open_queue: OpenQueue, pages: int) -> None:
    queue = open_queue(streams=4, streams_per_shard=4)
    flood = queue.write_many([(at, "flood") for at in range(100)])
    quiet = queue.write_many([(at, "quiet") for at in range(20)])
    for key, written in (("flood", flood), ("quiet", quiet)):
        found = peeked(queue, shard_key=key, pages=pages)
        assert sorted(ids(found)) == sorted(written)
        behind = [each.message_id for each in found if each.state == "held_back"]
        assert ids(found)[-len(behind) :] == behind == written[-len(behind) :]
    every = peeked(queue, pages=pages)
    assert {*ids(every)} == {*flood, *quiet}
    assert len(every) == 120
    states = [each.state for each in every]
    assert states == sorted(states, reverse=True)
    held = [each for each in every if each.state == "held_back"]
    assert ids(held) == ids(peeked(queue, "held_back", pages=pages))
    assert queue.stats().held_back == len(held)
    assert ids(peeked(queue, "held_back", pages=pages, shard_key="quiet")) == ids(
        [each for each in held if each.shard_key == "quiet"]
    )


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("pages", [3, 1000])
def test_delayed_ones_come_by_due_time_and_leases_by_their_end(
    open_queue: OpenQueue, rng: random.Random, window: int, pages: int
) -> None:
    """Many messages of one tenant lie in one bucket, and others have their own; several come due at the same time."""
    queue = open_queue(streams=4, streams_per_shard=4, window=window)
    due: dict[str, float] = {}
    for at in range(60):
        delay = rng.choice((100.0, 200.0, 300.0))
        due[queue.write(at, shard_key=rng.choice(("flood", "flood", f"t-{at}")), delay=delay)] = delay
    found = peeked(queue, "delayed", pages=pages)
    assert {*ids(found)} == due.keys()
    assert len(found) == 60
    times = [each.until or 0 for each in found]
    assert times == sorted(times)
    assert {*ids(peeked(queue, "delayed", pages=pages, shard_key="flood"))} == {
        each.message_id for each in found if each.shard_key == "flood"
    }
    queue.write_many([(at, f"t-{at % 9}") for at in range(40)])
    while queue.read_many(4, visibility_timeout=rng.choice((20, 21, 22))):
        pass
    leased = peeked(queue, "in_flight", pages=pages)
    ends = [each.until or 0 for each in leased]
    assert ends == sorted(ends)
    assert (len(leased), len({*ids(leased)})) == (40, 40)
    assert len(peeked(queue, "in_flight", pages=pages, shard_key="t-3")) == len(range(3, 40, 9))


def test_ties_of_one_bucket_are_paged(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=1, window=0)
    queue.write_many([(at, "t") for at in range(90)])
    queue.read_many(90)
    assert len(peeked(queue, "in_flight", pages=4)) == 90


@pytest.mark.once
@pytest.mark.parametrize("walk", range(3))
def test_one_stream_is_seen_in_the_order_in_which_it_is_then_delivered(
    open_queue: OpenQueue, world: World, rng: random.Random, walk: int
) -> None:
    """What was delivered before waits outside of the streams, and takes turns with them."""
    own = random.Random(rng.random() + walk)
    ops = RandomOps(open_queue, world, own)
    for _ in range(150):
        ops.step()
    queue = ops.queue
    queue.set_weights(dict.fromkeys(queue.weights(), 1))
    before = world.dump()
    streams = [
        peeked(queue, stream=number, pages=own.choice((1, 4, 1000))) for number in range(len(queue.stats().streams))
    ]
    every = [each for each in peeked(queue, pages=own.choice((1, 5, 1000))) if each.state == "waiting"]
    assert world.dump() == before, ops.log[-8:]
    streams = [[each for each in stream if each.deliveries == 0 and each.state == "waiting"] for stream in streams]
    assert {*ids(every)} >= {message_id for stream in streams for message_id in ids(stream)}
    delivered = read_singly(queue)
    for expected in streams:
        wanted = [each for each in ids(expected) if each in delivered]  # others are dead letters now
        assert [each for each in delivered if each in wanted] == wanted, ops.log


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("walk", range(2))
def test_every_message_is_seen_in_its_state(open_queue: OpenQueue, world: World, rng: random.Random, walk: int) -> None:
    own = random.Random(rng.random() + walk)
    ops = RandomOps(open_queue, world, own)
    for _ in range(6):
        for _ in range(25):
            ops.step()
        seen = {state: peeked(ops.queue, state, pages=own.choice((2, 50))) for state in STATES}
        every = [*seen["waiting"], *seen["delayed"], *seen["in_flight"], *seen["dead"]]
        assert len(every) == len({*ids(every)}), ops.log[-8:]
        known = {each.message_id for each in every if not each.cancelled}
        assert ops.alive <= known, ops.log[-8:]
        stats = ops.queue.stats()
        assert ids(seen["held_back"]) == ids([each for each in seen["waiting"] if each.state == "held_back"])
        assert (len(seen["held_back"]) <= stats.held_back, len(seen["dead"])) == (True, stats.dead), ops.log[-8:]
        for each in own.sample(every, min(20, len(every))):
            if each.state != "dead" and not each.cancelled:
                assert ops.queue.status(each.message_id).state == each.state, (each, ops.log[-8:])


@pytest.mark.parametrize("pages", [1, 50])
def test_who_is_ahead_of_the_others_and_paused_is_seen_once(open_queue: OpenQueue, pages: int) -> None:
    """A shard key that has received more than the others keeps a place behind them, also while it may have nothing."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    written: list[str] = [*queue.write_many([(0, "a"), *((at, "b") for at in range(5))])]
    for delivery in queue.read_many(2):
        written.remove(delivery.message_id)
        delivery.ack()
    queue.pause("a")
    written += queue.write_many([(at, "a") for at in range(3)])
    assert sorted(ids(peeked(queue, pages=pages))) == sorted(written)
    assert len(peeked(queue, "held_back", pages=pages)) == 6


def test_reads_in_turn_are_seen_in_turn(plain_queue: Queue) -> None:
    plain_queue.write_many([(at, f"t-{at % 7}") for at in range(50)])
    plain_queue.read()  # the next read begins at another stream
    expected = ids(peeked(plain_queue, pages=6))
    assert len(expected) == 49
    assert read_singly(plain_queue) == expected


@pytest.mark.parametrize("size", [1, 300_000])
def test_large_messages_are_all_seen(open_queue: OpenQueue, size: int) -> None:
    queue = open_queue(streams=2, streams_per_shard=2)
    written = queue.write_many([(b"x" * size, f"t-{at}") for at in range(12)])
    queue.nack_many(queue.read_many(5))
    found = peeked(queue)
    assert sorted(ids(found)) == sorted(written)
    assert {each.size for each in found} == {size}
    queue.read_many(12)
    assert sorted(ids(peeked(queue, "in_flight", payloads=True))) == sorted(written)


def test_looking_changes_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, journal=100)
    queue.write_many([(at, f"t-{at % 3}") for at in range(30)])
    queue.write(1, shard_key="t", delay=60)
    held = queue.read_many(6, visibility_timeout=20)
    held[0].nack(delay=5)
    held[1].nack()
    held[2].reject("no")
    world.elapse(queue, 21)
    queue.read_many(2)
    queue.cancel(queue.read().message_id)
    before = world.dump()
    assert all(peeked(queue, state, pages=2, payloads=payloads) for state in STATES for payloads in (False, True))
    assert world.dump() == before


def test_a_message_of_the_legacy_stream_is_seen_once_it_was_read(
    open_queue: OpenQueue, queue_name: str, world: World
) -> None:
    legacy = f"{{{queue_name}}}:old"
    queue = open_queue(streams=4, legacy_stream=legacy, legacy_group="g")
    queue.declare()
    world.raw.xadd(legacy, {"old": "x" * 10})
    assert peeked(queue) == []
    delivery = queue.read()
    [flying] = peeked(queue, "in_flight", payloads=True)
    assert (flying.message_id, flying.payload, flying.size) == (delivery.message_id, {"old": b"x" * 10}, 13)
    delivery.nack(error="no")
    [back] = peeked(queue)
    assert (back.message_id, back.stream, back.size, back.deliveries) == (delivery.message_id, None, 13, 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"count": 0}, {"count": 1001}, {"state": "gone"}, {"stream": -1}, {"stream": 4096}, {"shard_key": ""},
        {"after": "x"}, {"after": 7}, {"after": "k6V3cm9uZw=="},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_wanted_is_refused(queue: Queue, bad: dict[str, Any]) -> None:
    queue.write(1, shard_key="t")
    with pytest.raises(ConfigError):
        queue.peek(**bad)


def test_a_cursor_of_another_state_is_refused(queue: Queue) -> None:
    queue.write_many([(1, "t"), (2, "t")])
    cursor = queue.peek(1).cursor
    assert cursor
    with pytest.raises(ConfigError, match="after"):
        queue.peek(1, state="delayed", after=cursor)


def test_a_queue_that_is_not_there_is_missing(open_queue: OpenQueue, world: World) -> None:
    for state in STATES:
        with pytest.raises(QueueMissing):
            open_queue(create=False).peek(state=state)
    assert world.stored() == set()


def test_a_page_goes_on_where_messages_before_it_were_cancelled(open_queue: OpenQueue) -> None:
    """They were taken out of the block in which the page ended."""
    queue = open_queue(streams=2, window=1)
    ids = [str(queue.write("x" * (number % 7), shard_key="t")) for number in range(40)]
    for cancelled in range(1, 6):
        first = queue.peek(9, shard_key="t")
        for each in first.messages[1 : cancelled + 1]:
            queue.cancel(each.message_id)
            ids.remove(each.message_id)
        page, found = first, []
        while page.cursor is not None:
            page = queue.peek(9, shard_key="t", after=page.cursor)
            found += [each.message_id for each in page.messages]
        assert found == sorted(set(found), key=ids.index)
        assert ids[-8:] == found[-8:]
