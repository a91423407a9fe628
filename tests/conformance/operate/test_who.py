"""Who asked for a change, and why: kept with pauses, limits and weights, and told by the journal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from shardq import ConfigError, Limits, Queue, Where
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

BY, NOTE = "jonas", "ticket 4711, until the database is back"


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with a window and a journal."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, journal=1000)
    queue.declare()
    return queue


@pytest.mark.everywhere
def test_all_that_operators_hold_back_is_told_with_who_and_why(queue: Queue) -> None:
    nothing = queue.controls()
    assert (nothing.paused, nothing.limits, nothing.weights, nothing.plans) == ({}, {}, {}, {})
    before = queue.stats().time
    queue.set_plan("gold", rate=5)
    queue.pause(by=BY, note=NOTE)
    queue.pause("t", seconds=600, by="anna")
    queue.set_limits({"t": Limits(rate=5), "u": "gold"}, seconds=3600, by=BY, note=NOTE)
    queue.set_limits({b"\xff": Limits(max_in_flight=1)})
    queue.set_weights({"t": 3}, note="a large customer")
    found = queue.controls()
    after = queue.stats().time
    assert before <= found.time <= after

    whole, one = found.paused[None], found.paused["t"]
    assert (whole.until, whole.by, whole.note) == (math.inf, BY, NOTE)
    assert (one.by, one.note) == ("anna", "")
    assert before + 600 <= one.until <= after + 600
    limits = found.limits["t"]
    assert (limits.limits, limits.by, limits.note) == (Limits(rate=5), BY, NOTE)
    assert before + 3600 <= limits.until <= after + 3600
    assert (found.limits["u"].limits, found.limits[b"\xff"].until) == ("gold", math.inf)
    weight = found.weights["t"]
    assert (weight.weight, weight.until, weight.note) == (3, math.inf, "a large customer")
    assert weight.by == found.limits[b"\xff"].by == queue.client.name
    for each in (whole, one, limits, weight):
        assert before <= (each.since or 0) <= after
    assert found.plans["gold"].tenants == 1

    stats = queue.stats()
    assert (stats.paused_until, stats.paused_by, stats.paused_note) == (math.inf, BY, NOTE)
    assert stats.paused_since == whole.since


def test_each_change_has_its_own_author(queue: Queue) -> None:
    queue.set_limits({"t": Limits(rate=5)}, by="one")
    queue.pause("t", by="two")
    queue.set_weights({"t": 3}, by="three")
    found = queue.controls()
    assert [found.limits["t"].by, found.paused["t"].by, found.weights["t"].by] == ["one", "two", "three"]
    queue.pause("t", by="four")
    queue.resume("t", by="five")
    queue.set_limits({"t": Limits(rate=6)}, by="six")
    found = queue.controls()
    assert [found.limits["t"].by, [*found.paused], found.weights["t"].by] == ["six", [], "three"]
    queue.pause("t")
    assert queue.controls().paused["t"].by == queue.client.name


def test_a_pause_that_is_over_has_no_author_any_more(queue: Queue) -> None:
    queue.pause(by=BY)
    queue.resume()
    stats = queue.stats()
    assert (stats.paused_until, stats.paused_since, stats.paused_by, stats.paused_note) == (None, None, "", "")


def dead(queue: Queue) -> None:
    queue.write("dead", shard_key="t")
    queue.read().reject("no")


CHANGES: dict[str, tuple[Callable[[Queue], object], Callable[..., object]]] = {
    "paused": (lambda queue: None, lambda queue, **who: queue.pause(**who)),
    "paused, a shard key": (lambda queue: None, lambda queue, **who: queue.pause("t", **who)),
    "resumed": (lambda queue: queue.pause(), lambda queue, **who: queue.resume(**who)),
    "resumed, a shard key": (lambda queue: queue.pause("t"), lambda queue, **who: queue.resume("t", **who)),
    "limited": (lambda queue: None, lambda queue, **who: queue.set_limits({"t": Limits(rate=5)}, **who)),
    "weighted": (lambda queue: None, lambda queue, **who: queue.set_weights({"t": 3}, **who)),
    "configured": (lambda queue: None, lambda queue, **who: queue.configure(max_deliveries=9, **who)),
    "plan_set": (lambda queue: None, lambda queue, **who: queue.set_plan("gold", rate=5, **who)),
    "plan_deleted": (
        lambda queue: queue.set_plan("gold", rate=5), lambda queue, **who: queue.delete_plan("gold", **who),
    ),
    "purged": (lambda queue: queue.write(1, shard_key="t"), lambda queue, **who: queue.purge(**who)),
    "redriven": (dead, lambda queue, **who: queue.redrive(queue.dead(), **who)),
    "deleted": (dead, lambda queue, **who: queue.delete_dead(queue.dead(), **who)),
    "deleted, by id": (dead, lambda queue, **who: queue.delete_dead(ids=[queue.dead()[0].message_id], **who)),
    "cancelled": (
        lambda queue: queue.write(1, shard_key="t"),
        lambda queue, **who: queue.cancel(queue.peek(1).messages[0].message_id, **who),
    ),
}  # fmt: skip


def under_way(queue: Queue) -> None:
    dead(queue)
    queue.redrive(Where(state="dead"))


CHANGES["stopped"] = under_way, lambda queue, **who: queue.stop_action(queue.actions()[0].id, **who)


@pytest.mark.parametrize("change", CHANGES)
def test_the_journal_says_who_asked_for_it_and_why(queue: Queue, change: str) -> None:
    prepare, act = CHANGES[change]
    prepare(queue)
    begin = queue.journal().position
    act(queue, by=BY, note=NOTE)
    events = queue.journal(after=begin).events
    assert [(each.kind, each.by, each.note, each.client) for each in events] == [
        (change.partition(",")[0], BY, NOTE, queue.client.name)
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_by_default_it_is_the_client_and_there_is_no_note(queue: Queue, change: str) -> None:
    prepare, act = CHANGES[change]
    prepare(queue)
    begin = queue.journal().position
    act(queue)
    (event,) = queue.journal(after=begin).events
    assert (event.by, event.note, event.client) == (queue.client.name, "", queue.client.name)


BAD: list[Any] = [
    "two\nlines", "a\0", "\x1f", "a\x7f", "\x85", "\u2028", "x" * 201, "y" * 10_000, "\ud800", " ", b"jonas", 7,
    ["jonas"],
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_bad_name_or_note_is_refused_and_nothing_is_changed(queue: Queue, world: World, change: str) -> None:
    prepare, act = CHANGES[change]
    prepare(queue)
    before = world.dump()
    for bad in BAD:
        with pytest.raises(ConfigError, match="by must be a line of 1 to 100 characters"):
            act(queue, by=bad)
        with pytest.raises(ConfigError, match="note must be a line of 1 to 200 characters"):
            act(queue, note=bad)
    with pytest.raises(ConfigError, match="by must be"):
        act(queue, by="")
    with pytest.raises(ConfigError, match="by must be"):
        act(queue, by="x" * 101)
    assert world.dump() == before


@pytest.mark.parametrize(
    "text", ["a|b", "a,b,c 1", "=gold", "l1,2,3,p4", "ключ 🔑", "\u202eabc", "'\"`$(x)", "x" * 100]
)
def test_any_line_is_told_as_it_is(queue: Queue, text: str) -> None:
    queue.pause(by=text, note=text)
    queue.pause("t", by=text, note=text)
    queue.set_limits({"t": Limits(rate=5)}, by=text, note=text)
    queue.set_weights({"t": 3}, by=text, note=text)
    found = queue.controls()
    told = [found.paused[None], found.paused["t"], found.limits["t"], found.weights["t"]]
    assert {(each.by, each.note) for each in told} == {(text, text)}
    assert {
        (each.by, each.note) for each in queue.journal().events if each.kind in ("paused", "limited", "weighted")
    } == {(text, text)}
    assert (queue.stats().paused_by, queue.limits(), queue.weights()) == (text, {"t": Limits(rate=5)}, {"t": 3})
    queue.resume()
    assert queue.read_many(1) == []


def test_the_largest_name_and_note_fit(queue: Queue) -> None:
    """In bytes they are four times as long."""
    by, note = "🔑" * 100, "🔑" * 200
    queue.pause("t", by=by, note=note)
    assert (queue.controls().paused["t"].by, queue.controls().paused["t"].note) == (by, note)


@pytest.mark.parametrize("task", ["mail.send", None])
def test_the_journal_says_who_let_a_schedule_run(queue: Queue, task: str | None) -> None:
    """By default that is nobody, as of all writes."""
    queue.configure(max_schedules=1)
    queue.schedules.add("often", "call" if task is None else [task, {}], shard_key="t", every=60)
    begin = queue.journal().position
    ids = [queue.schedules.run("often"), queue.schedules.run("often", by=BY, note=NOTE)]
    ids += [queue.schedules.run("often", note="🔑 a,b" * 40), queue.schedules.run("often", by="🔑" * 100)]
    found = queue.journal(after=begin).events
    assert [(each.kind, each.message_id, each.task, each.client) for each in found] == [
        ("written", each, task or "", "") for each in ids
    ]
    assert [(each.by, each.note) for each in found] == [
        ("", ""), (BY, NOTE), (queue.client.name, "🔑 a,b" * 40), ("🔑" * 100, ""),
    ]  # fmt: skip
    for bad in BAD:
        with pytest.raises(ConfigError, match="by must be a line of 1 to 100 characters"):
            queue.schedules.run("often", by=bad)
    assert queue.journal(after=begin).position == begin + 4


def test_an_action_that_is_stopped_twice_was_stopped_by_the_first(queue: Queue) -> None:
    under_way(queue)
    begin = queue.journal().position
    (one,) = queue.actions()
    for by in (BY, "anna"):
        assert queue.stop_action(one.id, by=by).state == "stopping"
    assert [(each.kind, each.by) for each in queue.journal(after=begin).events] == [("stopped", BY)]


@pytest.mark.everywhere
def test_of_one_shard_key_nothing_else_is_told(queue: Queue) -> None:
    queue.set_limits({f"tenant-{at}": Limits(rate=5) for at in range(200)}, by="anna")
    queue.set_limits({b"\xff": Limits(max_in_flight=1)}, seconds=60, by=BY, note=NOTE)
    queue.pause(b"\xff", by=BY)
    queue.set_weights({b"\xff": 3})
    queue.pause(by="anna")
    found, every = queue.controls(b"\xff"), queue.controls()
    assert set(found.paused) == {None, b"\xff"}
    assert (set(found.limits), set(found.weights)) == ({b"\xff"}, {b"\xff"})
    assert (found.limits[b"\xff"], found.paused[None]) == (every.limits[b"\xff"], every.paused[None])
    found = queue.controls("nobody")
    assert (set(found.paused), found.limits, found.weights) == ({None}, {}, {})
    with pytest.raises(ConfigError, match="shard key"):
        queue.controls("")
