"""bind, unbind and publish: bindings shared through Redis, and one copy for each queue."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client, ConfigError, PartlyPublished, PatternError, Queue, QueueFull, Unrouted
from shardq.ops.queue.steps import Batch, Call
from shardq.ops.queue.together import MAX_KEYS
from shardq.ops.topics import bindings as routing
from tests.conformance.world import World


def bindings(client: Client) -> set[tuple[str, str]]:
    return {(each.pattern, each.queue) for each in client.router().bindings()}


def steps_of(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps that the client's driver performs from now on."""
    driver: Any = client._driver
    seen: list[Any] = []
    name = "perform" if hasattr(driver, "perform") else "_perform"
    perform = getattr(driver, name)
    monkeypatch.setattr(driver, name, lambda step: perform(seen.append(step) or step))  # type: ignore[func-returns-value]
    return seen


@pytest.mark.everywhere
def test_a_topic_goes_to_each_bound_queue_once(client: Client, queue_name: str) -> None:
    eu, every = client.queue(f"{queue_name}-eu", create=True), client.queue(f"{queue_name}-all", create=True)
    assert client.bind("orders.eu.*", eu)
    assert client.bind("orders.#", every.name)
    assert client.bind("#.created", every)
    assert not client.bind("orders.#", every)
    ids = client.publish("orders.eu.created", {"n": 1}, shard_key="t", headers={"h": "1"})
    assert ids == {eu.name: eu.read().message_id, every.name: every.read().message_id}
    assert set(client.publish("orders.us.created", b"x", shard_key="t")) == {every.name}
    assert (eu.len(), every.len()) == (1, 2)


def test_a_topic_without_a_queue_returns_nothing_or_raises(client: Client) -> None:
    assert client.publish("nobody", 1, shard_key="t") == {}
    with pytest.raises(Unrouted, match="nobody"):
        client.publish("nobody", 1, shard_key="t", unmatched="raise")
    assert client.router_state().unrouted == 2
    with pytest.raises(ConfigError, match="unmatched"):
        client.publish("nobody", 1, shard_key="t", unmatched="drop")
    for topic in ("a.*", "a..b"):
        with pytest.raises(PatternError):
            client.publish(topic, 1, shard_key="t")
    with pytest.raises(PatternError):
        client.bind("a..b", "q")


def test_unbinding_takes_back_one_binding(client: Client) -> None:
    client.bind("a.*", "one")
    client.bind("a.*", "two")
    assert client.unbind("a.*", "one")
    assert not client.unbind("a.*", "one")
    assert bindings(client) == {("a.*", "two")}


def test_many_are_bound_and_unbound_and_those_that_were_so_are_returned(
    world: World, client: Client, queue_name: str
) -> None:
    queue, other = client.queue(queue_name, create=True), world.client()
    pairs: list[tuple[str, Queue | str]] = [("a.*", queue), ("b", queue_name), ("a.*", "other"), ("a.*", queue_name)]
    assert client.bind_many(pairs) == []
    assert client.bind_many([("b", queue), ("c", queue)]) == [("b", queue_name)]
    assert set(client.router().match("a.x")) == {queue_name, "other"}
    assert client.unbind_many([("a.*", queue), ("no", "q"), ("b", "other"), ("c", queue), ("c", queue)]) == [
        ("no", "q"),
        ("b", "other"),
    ]
    assert bindings(client) == bindings(other) == {("b", queue_name), ("a.*", "other")}
    assert client.router_state().version == other.router_state().version == 6
    assert client.unbind_many(client.router().covered_by("#")) == client.unbind_many([]) == []
    assert bindings(other) == set()


@pytest.mark.once
@pytest.mark.parametrize(
    "bad", [[("a", "q"), ("a..b", "q")], [("a", "q"), ("b", "")], [("a", "q"), "ab"], "ab", 7, [("a", "q", "r")]]
)
def test_of_many_bindings_with_a_bad_one_nothing_is_written(client: Client, bad: Any) -> None:
    client.bind("a", "r")
    for act in (client.bind_many, client.unbind_many):
        with pytest.raises(ConfigError):
            act(bad)
    assert bindings(client) == {("a", "r")}


@pytest.mark.once
def test_a_thousand_bindings_take_one_round_trip(client: Client, real: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "BINDINGS_A_CALL", 10)
    client.bind("first", "q")
    seen = steps_of(client, monkeypatch)
    many = [(f"k{n}.*", "q") for n in range(25)]
    assert client.bind_many(many) == []
    assert [step.script.name for step in seen if isinstance(step, Call)] == ["bind"] * 3 + ["follow"] * 3
    seen.clear()
    assert client.unbind_many(many[5:]) == []
    assert [step.script.name for step in seen if isinstance(step, Call)] == ["bind"] * 2 + ["follow"] * 2
    assert bindings(client) == {("first", "q"), *many[:5]}


@pytest.mark.everywhere
def test_clients_follow_one_another_and_routers_do_not_mix(world: World, client: Client) -> None:
    other = world.client()
    client.bind("", "empty")
    assert bindings(other) == {("", "empty")}
    other.bind("b", "two")
    client.unbind("", "empty")
    assert bindings(client) == bindings(other) == {("b", "two")}
    state = other.router_state()
    assert (state.version, state.loads) == (3, 1)
    assert state.age is not None
    assert list(client.router("second").bindings()) == []


@pytest.mark.once
def test_a_client_that_missed_changes_loads_all(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "BINDINGS_A_CALL", 7)
    late = world.client()
    client.bind("first", "q")
    assert bindings(late) == {("first", "q")}
    for number in range(40):
        client.bind(f"k{number}.*", "q")
    client.unbind("first", "q")
    assert (len(bindings(late)), late.router_state().loads) == (40, 1)  # in parts, by the changes
    client.bind("more", "q")
    client.bind("yet-more", "q")
    world.raw.xtrim(client.router_state().keys.changes, maxlen=1, approximate=False)
    assert bindings(late) == bindings(client)
    assert (len(bindings(late)), late.router_state().loads) == (42, 2)


def test_bindings_that_were_lost_are_lost_everywhere(world: World, client: Client) -> None:
    other = world.client()
    client.bind("a", "q")
    client.bind("b", "q")
    assert len(bindings(other)) == 2
    for key in (client.router_state().keys.bindings, client.router_state().keys.changes):
        world.raw.delete(key)
    assert bindings(other) == set()
    client.bind("c", "q")
    client.bind("d", "q")
    assert bindings(other) == bindings(client) == {("c", "q"), ("d", "q")}


def test_one_full_queue_does_not_keep_the_others_from_their_copy(client: Client, queue_name: str) -> None:
    full = client.queue(f"{queue_name}-full", max_len=1)
    full.write(1, shard_key="t")
    free = client.queue(f"{queue_name}-free", create=True)
    client.bind("a", full)
    client.bind("a", free)
    with pytest.raises(PartlyPublished) as raised:
        client.publish("a", 2, shard_key="t")
    results = raised.value.results
    assert isinstance(results[full.name], QueueFull)
    assert free.read().message_id == results[free.name]


@pytest.mark.once
def test_no_more_bindings_than_there_may_be(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MAX_BINDINGS", 2)
    client.bind("a", "q")
    client.bind("b", "q")
    with pytest.raises(QueueFull, match="it may have at most"):
        client.bind("c", "q")
    assert not client.bind("a", "q")
    assert client.unbind("a", "q")
    assert client.bind("c", "q")


@pytest.mark.once
def test_a_hundred_queues_get_their_copies_in_few_round_trips(
    client: Client, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        client.bind("#", client.queue(f"many{number}", create=True))
    client.publish("warm.up", 1, shard_key="t")
    seen = steps_of(client, monkeypatch)
    assert len(client.publish("a", 1, shard_key="t")) == 100
    assert len(seen) <= 2


@pytest.mark.once
def test_queues_are_opened_together_in_batches_that_do_not_hold_up_others(
    world: World, client: Client, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [client.queue(f"new{number}", create=True) for number in range(150)]
    assert client.bind_many([("#", queue.name) for queue in queues]) == []
    seen = steps_of(client, monkeypatch)
    assert len(client.publish("a", 1, shard_key="t")) == 150  # they are made
    batches = [step.calls for step in seen if isinstance(step, Batch)]
    assert all(sum(len(call.call.keys) for call in calls) <= MAX_KEYS for calls in batches)
    assert len(seen) < 20
    other = world.client()
    other.router()
    seen = steps_of(other, monkeypatch)
    assert len(other.publish("a", 1, shard_key="t")) == 150  # they are only looked up
    assert [call.script.name for step in seen for call in step.calls] == ["open"] * 150 + ["write"] * 150
    assert len(seen) <= 5
    assert client.queue("new7", create=True).len() == 2
