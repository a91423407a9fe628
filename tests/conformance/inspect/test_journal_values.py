"""What the journal says of what people set, and of the workers that come and go: the values, bounded, once each."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Event, Limits, Queue
from shardq.ops.inspect.beats import beat_call
from shardq.ops.queue.steps import Call
from shardq.protocol.beats import GONE_AFTER
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.inner import run

ROW = "0|8|2.50|1800000000000|7|1048576||0.1.0|host||||5|1|mail.send=5,1,20;|acme=6,20,30;|b2"
ENDED = "1" + ROW[1:]
LOOKS = 2000
"""More beats than it takes until one of a few workers is looked at by chance."""


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=4, streams_per_shard=4, journal=100_000)
    queue.declare()
    return queue


def told(queue: Queue, *kinds: str) -> list[Event]:
    return [each for each in queue.journal(10_000).events if each.kind in kinds]


def beat(queue: Queue, worker: str, row: str = ROW) -> None:
    run(queue, beat_call(queue.state, worker, row, "", "", first=False))


def hear_earlier(queue: Queue, world: World, worker: str, seconds: float) -> None:
    """Make a worker's last beat so many seconds older."""
    heard, _, rest = world.raw.hget(queue.state.keys.workers, worker).partition(b"|")
    world.raw.hset(queue.state.keys.workers, worker, b"%d|%b" % (int(heard) - 1000 * seconds, rest))


def looked_at(queue: Queue, wanted: int) -> list[dict[str, str]]:
    """The values of those that left, when so many have: beats look at others by chance."""
    for _ in range(LOOKS):
        beat(queue, "looks")
        if len(found := [dict(each.values) for each in told(queue, "left")]) >= wanted:
            return found
    raise AssertionError(told(queue, "joined", "left"))


@pytest.mark.everywhere
def test_what_was_set_is_told_with_its_values(queue: Queue) -> None:
    queue.set_weights({"a": 3, "b": 1})
    queue.set_plan("gold", max_in_flight=5, rate=2.5, burst=4, weight=2)
    queue.set_limits({"a": Limits(max_in_flight=7), "b": Limits(rate=1.5, burst=3), "c": "gold"})
    queue.set_limits({"a": Limits()})
    queue.set_limits({"c": Limits()})
    queue.delete_plan("gold")
    queue.configure(max_deliveries=7, fair="messages")
    rows = [(each.kind, each.shard_key, dict(each.values)) for each in queue.journal().events]
    assert rows == [
        ("weighted", "a", {"weight": "3"}),
        ("weighted", "b", {"weight": "1"}),
        ("plan_set", None, {"plan": "gold", "max_in_flight": "5", "rate": "2.5", "burst": "4", "weight": "2"}),
        ("limited", "a", {"max_in_flight": "7"}),
        ("limited", "b", {"rate": "1.5", "burst": "3"}),
        ("limited", "c", {"plan": "gold"}),
        ("limited", "a", {}),
        ("limited", "c", {}),
        ("plan_deleted", None, {"plan": "gold"}),
        ("configured", None, {"max_deliveries": "7", "fair": "messages"}),
    ]
    assert {each.message_id for each in queue.journal().events} == {""}


@pytest.mark.parametrize("key", [None, "a"])
def test_a_pause_tells_how_long_it_is_and_its_end_how_long_it_would_have_gone_on(queue: Queue, key: Any) -> None:
    of = () if key is None else (key,)
    queue.pause(*of, seconds=60)
    queue.resume(*of)
    queue.pause(*of)
    queue.resume(*of)
    queue.resume(*of)
    paused, resumed, *others = queue.journal().events
    assert (paused.kind, paused.shard_key, dict(paused.values)) == ("paused", key, {"seconds": "60.000"})
    assert paused.due is not None
    assert paused.due == pytest.approx(paused.time + 60, abs=0.002)
    assert resumed.kind == "resumed"
    assert float(resumed.values["seconds"]) == pytest.approx(paused.due - resumed.time, abs=0.002)
    assert [(each.kind, each.due, dict(each.values)) for each in others] == [
        ("paused", None, {}), ("resumed", None, {}), ("resumed", None, {}),
    ]  # fmt: skip


def test_values_are_bounded(queue: Queue) -> None:
    queue.configure(legacy_stream="s" * 200, legacy_group="g")
    (event,) = told(queue, "configured")
    assert event.values == {"legacy_stream": "s" * 63, "legacy_group": "g"}


def test_a_worker_joins_once_and_leaves_once(queue: Queue) -> None:
    for _ in range(50):
        beat(queue, "host-7")
        beat(queue, "host-8", ROW.replace("|8|", "|32|", 1))
    beat(queue, "host-7", ENDED)
    beat(queue, "host-7", ENDED)
    beat(queue, "never-heard", ENDED)
    assert [(each.kind, each.client, dict(each.values)) for each in queue.journal().events] == [
        ("joined", "host-7", {"worker": "host-7", "slots": "8"}),
        ("joined", "host-8", {"worker": "host-8", "slots": "32"}),
        ("left", "host-7", {"worker": "host-7", "slots": "8"}),
    ]
    beat(queue, "host-7")
    assert [each.kind for each in told(queue, "joined", "left")] == ["joined", "joined", "left", "joined"]


def test_a_worker_that_is_silent_is_given_up_once_and_joins_again(queue: Queue, world: World) -> None:
    """Others notice that. It is still shown as gone."""
    beat(queue, "host-7")
    hear_earlier(queue, world, "host-7", 2 * GONE_AFTER)
    (left,) = looked_at(queue, 1)
    assert (left["worker"], left["slots"]) == ("host-7", "8")
    assert 2 * GONE_AFTER <= float(left["silent"]) < 4 * GONE_AFTER
    assert {each.id: each.state for each in queue.workers()} == {"looks": "working", "host-7": "gone"}
    for _ in range(100):
        beat(queue, "looks")
    assert len(told(queue, "left")) == 1
    beat(queue, "host-7")
    assert [each.values["worker"] for each in told(queue, "joined")] == ["host-7", "looks", "host-7"]


def test_one_that_said_its_end_is_not_given_up(queue: Queue, world: World) -> None:
    beat(queue, "over")
    beat(queue, "over", ENDED)
    beat(queue, "gone")
    for worker in ("over", "gone"):
        hear_earlier(queue, world, worker, 2 * GONE_AFTER)
    assert [each["worker"] for each in looked_at(queue, 2)] == ["over", "gone"]


def test_without_a_journal_a_beat_names_no_more_keys_and_notes_nothing(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=4)
    queue.declare()
    assert len(beat_call(queue.state, "w", ROW, "", "", first=False).keys) == 3
    beat(queue, "w")
    # One that believes in a journal that was switched off meanwhile notes nothing either.
    keys = queue.state.keys
    run(queue, Call.on(keys, "beat", ("v", ROW), rest=(keys.journal,)))
    assert queue.journal().events == []


def test_an_event_of_an_earlier_version_is_read_beside_later_ones(queue: Queue, world: World) -> None:
    """What they do not tell is None."""
    message_id = queue.write("1", shard_key="a")
    key, meta = queue.state.keys.journal, queue.state.keys.meta
    last = int(world.raw.hincrby(meta, "events", 1))
    older = f"a\n{message_id}\n1\n1\n\nhost-7\na".encode()
    world.raw.xadd(key, {b"1": older}, id=f"{last}-{message_id.partition('-')[0]}")
    queue.read().ack()
    rows = [(each.kind, each.version, each.charged_ms is None) for each in queue.journal().events]
    assert rows == [("written", 2, True), ("acked", 1, True), ("delivered", 2, True), ("acked", 2, False)]


def test_a_worker_joins_with_its_first_beat_that_knows_of_the_journal(queue: Queue) -> None:
    """It beats before it has looked at the queue, and so does one that works when a journal begins."""
    keys = queue.state.keys
    for _ in range(2):
        run(queue, Call.on(keys, "beat", ("w", ROW)))
    assert told(queue, "joined", "left") == []
    assert [each.state for each in queue.workers()] == ["working"]
    for _ in range(2):
        beat(queue, "w")
    beat(queue, "w", ENDED)
    assert [each.kind for each in told(queue, "joined", "left")] == ["joined", "left"]
    run(queue, Call.on(keys, "beat", ("short", ROW)))
    beat(queue, "short", ENDED)
    assert len(told(queue, "joined", "left")) == 2
