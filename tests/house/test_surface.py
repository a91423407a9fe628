"""What tables of tests are compared with is all that there is, and each comparison can fail."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from shardq import AsyncQueue, Queue
from tests import surface
from tests.house.twins import GENERATED
from tests.verbs import APART, VERBS


def shuffle(_: object, *, timeout: float | None = None) -> None:
    """What no queue can do."""


WIDER = type("Queue", (Queue,), {"shuffle": shuffle, "colour": property(shuffle), "__module__": Queue.__module__})


@pytest.mark.parametrize("twins", [{WIDER: AsyncQueue}, {Queue: WIDER}], ids=["threads", "asyncio"])
def test_a_method_more_of_either_twin_is_missing_in_each_table(
    monkeypatch: pytest.MonkeyPatch, twins: dict[type, type]
) -> None:
    table = surface.calls(Queue)
    assert "Queue.write" in table
    monkeypatch.setattr(surface, "TWINS", twins)
    assert surface.differences(table, surface.calls()) == ["Queue.shuffle is missing"]
    assert surface.members(WIDER).keys() - surface.members(Queue).keys() == {"shuffle", "colour"}


def test_what_is_gone_left_out_twice_or_without_a_reason_is_told() -> None:
    table, apart = ["a", "b, often", "b, seldom", "c"], {"c": "why", "d": "", "e": "why"}
    assert surface.differences(table, ["a", "b", "c", "d"], apart) == [
        "e is there no more",
        "c is in the table, and said to be left out",
        "d is left out without a reason",
    ]
    assert surface.differences(["a"], ["a", "b"], {"b": "why"}) == []


def test_an_entry_that_calls_another_method_is_told() -> None:
    def publish(queue: Queue) -> object:
        return [queue.client.publish(each, 1, shard_key="t") for each in "ab"]

    table = {
        "Queue.len": lambda queue: queue.len(),
        "Queue.stats, again": lambda queue: queue.len(),
        "Client.publish": publish,
    }
    assert surface.not_called(table) == ["Queue.stats, again"]


def test_each_class_that_has_a_twin_is_looked_at() -> None:
    modules = [import_module(f"shardq.client.{name}") for name in GENERATED]
    made = [
        each
        for module in modules
        for each in vars(module).values()
        if getattr(each, "__module__", "") == module.__name__
    ]
    bases = {base for kind in surface.TWINS for base in kind.__mro__[1:]}
    kinds = {each for each in made if inspect.isclass(each) and not getattr(each, "_is_protocol", False)}
    # A queue with partitions is a Queue, and one of which nothing is known: tests/conformance/partitions shows each of
    # their methods.
    kinds = {each for each in kinds if each.__module__ not in ("shardq.client.partitions", "shardq.client.untold")}
    assert kinds - bases == surface.TWINS.keys()


def test_the_table_of_calls_has_each() -> None:
    assert surface.differences(VERBS, surface.calls(), APART) == []
    assert surface.not_called(VERBS) == []


def test_what_asks_no_server_takes_no_timeout() -> None:
    """So a method that is new is a call, or its line in `LOCAL` says what it does instead."""
    every = {f"{kind.__name__}.{name}": getattr(kind, name) for kind in surface.TWINS for name in surface.methods(kind)}
    without = {name for name, each in every.items() if "timeout" not in inspect.signature(each).parameters}
    assert without - {"Writer.close", "Writer.flush"} == surface.LOCAL.keys() - {"Client.beside"}
