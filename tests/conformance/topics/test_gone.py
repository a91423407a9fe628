"""Bindings to queues that are gone: a publish passes over them and says so, and one call takes them away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from shardq import Client, ConfigError, PartlyDone, PartlyPublished, Queue, QueueFull, Unrouted
from shardq.ops.queue.steps import Batch, Call, Refused
from shardq.ops.topics import bindings as routing
from shardq.routing import BoundQueue
from tests.conformance.topics.test_publish import bindings, steps_of
from tests.conformance.world import World, drained

Bound = Callable[..., list[Queue]]


@pytest.fixture
def bound(world: World, queue_name: str) -> Bound:
    """Queues that exist and that the topic "news" goes to, made by a client of their own."""
    owner = world.client()

    def bound(*names: str, **settings: Any) -> list[Queue]:
        queues = [owner.queue(f"{queue_name}.{name}", streams=2, streams_per_shard=1, **settings) for name in names]
        for queue in queues:
            queue.declare()
            owner.bind("news", queue)
        return queues

    return bound


def scripts_of(steps: list[Any]) -> list[list[str]]:
    """The names of the scripts of each round trip."""
    found: list[list[str]] = []
    for step in steps:
        calls = step.calls if isinstance(step, Batch) else [step]
        found.append([call.call.script.name for call in calls])
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.everywhere
def test_the_others_get_a_publish_once_and_nothing_is_raised(client: Client, bound: Bound) -> None:
    first, gone, last = bound("a", "b", "c")
    assert len(client.publish("news", 0, shard_key="t")) == 3
    gone.delete(expected=1)
    for number in (1, 2):
        ids = client.publish("news", number, shard_key="t")
        assert ids.keys() == {first.name, last.name}
    for queue in (first, last):
        found = drained(queue)
        assert [each.payload for each in found] == [0, 1, 2]
        assert found[-1].message_id == ids[queue.name]
    assert gone.stats().streams == (), "a publish creates no queue"


def test_it_is_told_once_for_as_long_as_the_queue_is_gone(
    client: Client, bound: Bound, caplog: pytest.LogCaptureFixture
) -> None:
    _, gone, other = bound("a", "b", "c")
    for queue in (gone, other):
        queue.delete()
    for number in range(5):
        client.publish("news", number, shard_key="t")
    (line,) = warnings(caplog)
    assert gone.name in line
    assert "router 'default': 2 " in line
    assert "shardq topics unbind --gone" in line
    caplog.clear()
    gone.declare()
    assert len(client.publish("news", 5, shard_key="t")) == 2, "it is there again"
    gone.delete(expected=None)
    for number in range(5):
        client.publish("news", number, shard_key="t")
    (line,) = warnings(caplog)
    assert f"router 'default': 1 bound queues do not exist, such as '{gone.name}'" in line


@pytest.mark.everywhere
def test_a_queue_that_is_made_anew_gets_what_is_published_from_then_on(client: Client, bound: Bound) -> None:
    (queue,) = bound("a")
    assert len(client.publish("news", "before", shard_key="t")) == 1
    queue.delete(expected=1)
    assert client.publish("news", "lost", shard_key="t") == {}
    queue.declare()
    assert client.publish("news", "after", shard_key="t").keys() == {queue.name}
    assert [each.payload for each in drained(queue)] == ["after"]


@pytest.mark.once
def test_a_queue_that_is_deleted_between_the_look_and_the_write_is_gone(
    client: Client, real: None, bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, gone, last = bound("a", "b", "c")
    driver: Any = client._driver
    perform = driver.perform

    def interrupted(step: Any) -> Any:
        if isinstance(step, Batch) and step.calls[0].call.script.name == "write":
            gone.delete(expected=None)
        return perform(step)

    monkeypatch.setattr(driver, "perform", interrupted)
    assert client.publish("news", 1, shard_key="t").keys() == {first.name, last.name}
    assert (first.len(), last.len(), gone.stats().streams) == (1, 1, ())


def test_when_all_are_gone_it_is_as_if_nothing_were_bound(client: Client, bound: Bound) -> None:
    for queue in bound("a", "b"):
        queue.delete()
    assert client.publish("news", 1, shard_key="t") == {}
    with pytest.raises(Unrouted, match="'news'"):
        client.publish("news", 1, shard_key="t", unmatched="raise")
    assert (client.router_state().published, client.router_state().unrouted) == (0, 2)


def test_a_queue_that_this_client_would_create_is_not_gone(client: Client, bound: Bound) -> None:
    other, queue = bound("a", "b")
    mine = client.queue(queue.name, streams=3)
    queue.delete()
    assert client.publish("news", 1, shard_key="t").keys() == {other.name, queue.name}
    assert mine.settings().streams == 3


def test_a_failure_beside_a_gone_queue_names_the_queues_that_are_there(client: Client, bound: Bound) -> None:
    gone, full, free = bound("a", "full", "free")
    full.configure(max_len=1)
    full.write(1, shard_key="t")
    gone.delete()
    with pytest.raises(PartlyPublished, match="1 of 2 queues") as raised:
        client.publish("news", 2, shard_key="t")
    results = raised.value.results
    assert results.keys() == {full.name, free.name}
    assert isinstance(results[full.name], QueueFull)
    assert free.read().message_id == results[free.name]


@pytest.mark.everywhere
def test_a_publish_that_is_repeated_under_its_dedup_key_doubles_nothing(client: Client, bound: Bound) -> None:
    full, free, gone = bound("full", "free", "gone")
    full.configure(max_len=1)
    held = full.write("-", shard_key="t")
    gone.delete()
    with pytest.raises(PartlyPublished) as raised:
        client.publish("news", 1, shard_key="t", dedup_key="k")
    assert full.cancel(held) == "removed"
    gone.declare()
    ids = client.publish("news", 1, shard_key="t", dedup_key="k")
    assert ids.keys() == {full.name, free.name, gone.name}
    assert ids[free.name] == raised.value.results[free.name]
    assert client.publish("news", 1, shard_key="t", dedup_key="k") == ids
    assert [queue.len() for queue in (full, free, gone)] == [1, 1, 1]


@pytest.mark.once
def test_a_publish_without_a_gone_queue_takes_the_calls_that_it_took(
    client: Client, real: None, bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = bound("a", "b", "c", "d")
    client.publish("news", 0, shard_key="t")
    client.router_state().max_age = 600.0
    client.router()
    seen = steps_of(client, monkeypatch)
    client.publish("news", 1, shard_key="t")
    assert scripts_of(seen) == [["write"] * 4]
    for queue in queues[2:]:
        queue.delete(expected=None)
    client.publish("news", 2, shard_key="t")
    seen.clear()
    client.publish("news", 3, shard_key="t")
    assert [sorted(each) for each in scripts_of(seen)] == [["open", "open", "write", "write"]]


@pytest.mark.everywhere
def test_bindings_say_which_are_gone_and_one_call_takes_these_away(client: Client, bound: Bound) -> None:
    there, gone = bound("a", "b")
    client.bind_many([("news.#", gone), ("news.#", there), ("other", f"{gone.name}.never-made")])
    gone.delete()
    assert client.bindings() == [
        BoundQueue("news", there.name, gone=False),
        BoundQueue("news", gone.name, gone=True),
        BoundQueue("news.#", there.name, gone=False),
        BoundQueue("news.#", gone.name, gone=True),
        BoundQueue("other", f"{gone.name}.never-made", gone=True),
    ]
    assert client.bindings(router="another") == []
    removed = [("news", gone.name), ("news.#", gone.name), ("other", f"{gone.name}.never-made")]
    assert client.unbind_gone() == removed
    assert client.unbind_gone() == []
    assert bindings(client) == {("news", there.name), ("news.#", there.name)}
    gone.declare()
    assert client.publish("news", 1, shard_key="t").keys() == {there.name}


@pytest.mark.once
def test_many_queues_are_looked_at_in_few_round_trips(
    client: Client, real: None, bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there,) = bound("a")
    client.bind_many([(f"p{number}", f"gone{number % 900}") for number in range(1800)])
    client.router()
    seen = steps_of(client, monkeypatch)
    found = client.bindings()
    assert [each.queue for each in found if not each.gone] == [there.name]
    assert len(found) == 1801
    assert len(seen) <= 4
    assert sum(len(each) for each in scripts_of(seen) if each[0] == "len") == 901, "each queue once"


@pytest.mark.once
def test_a_queue_that_is_made_while_its_binding_is_taken_away_keeps_it(
    client: Client, real: None, bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner finds it bound, and binds nothing, just before the binding goes."""
    gone, made = bound("a", "b")
    for queue in (gone, made):
        queue.delete()
    driver: Any = client._driver
    perform = driver.perform

    def interrupted(step: Any) -> Any:
        if isinstance(step, Call) and step.script.name == "bind" and not made.stats().streams:
            made.declare()
            assert not made.client.bind("news", made)
        return perform(step)

    monkeypatch.setattr(driver, "perform", interrupted)
    assert client.unbind_gone() == [("news", gone.name)]
    assert bindings(client) == {("news", made.name)}
    assert client.publish("news", 1, shard_key="t").keys() == {made.name}


@pytest.mark.once
def test_a_removal_that_is_stopped_halfway_says_how_many_are_removed(
    client: Client, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "BINDINGS_A_CALL", 10)
    many = [(f"k{number:02}", "never-made") for number in range(25)]
    client.bind_many(many)
    driver: Any = client._driver
    perform, calls = driver.perform, []

    def failing(step: Any) -> Any:
        if isinstance(step, Call) and step.script.name == "bind":
            calls.append(step)
            if len(calls) == 3:
                raise Refused("NOPERM", "this user has no permissions")
        return perform(step)

    monkeypatch.setattr(driver, "perform", failing)
    with pytest.raises(PartlyDone) as raised:
        client.unbind_gone()
    assert raised.value.done == 20
    monkeypatch.undo()
    assert client.unbind_gone() == many[20:]


@pytest.mark.once
def test_a_change_that_cannot_be_followed_was_made_all_the_same(
    client: Client, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is asked for again before it is used."""
    client.bind("first", "q")
    driver: Any = client._driver
    perform = driver.perform

    def failing(step: Any) -> Any:
        if isinstance(step, Call) and step.script.name == "follow":
            raise Refused("NOPERM", "this user has no permissions")
        return perform(step)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "perform", failing)
        assert client.bind("second", "q")
    assert client.router_state().age is None
    assert client.publish("second", 1, shard_key="t") == {}
    assert set(client.router_state().router.match("second")) == {"q"}


def test_a_bad_router_is_refused(client: Client) -> None:
    for call in (client.bindings, client.unbind_gone):
        with pytest.raises(ConfigError):
            call(router="{}")
